"""Networks compute in float32, laws in float64: what that rests on is kept, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn

from stream_tpp.errors import StreamTppError

P = ParamSpec("P")
R = TypeVar("R")


class SinglePrecision(nn.Module):
    """A network that can go to another device, but not to another float type.

    Sampling is exact for the law that the target computes, and needs one law: in half precision the same events in a block of
    another shape have a visibly different one.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        asked = fn(torch.zeros(1)).dtype
        if asked != torch.float32:
            raise StreamTppError(f"A model computes in float32 and can't be made {_name(asked)}: move it to a device alone.")
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]


def require_types(tensors: Mapping[str, Tensor], module: nn.Module, where: str) -> None:
    """Raises StreamTppError where a tensor is not of the number type that the module keeps under its name."""
    kept = module.state_dict()
    for name, tensor in tensors.items():
        if name in kept and tensor.dtype != kept[name].dtype:
            raise StreamTppError(
                f"{where} holds {name} as {_name(tensor.dtype)} where {_name(kept[name].dtype)} is needed: give the weights as "
                "`stream-tpp fit` wrote them."
            )


def outside_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which a caller's autocast to half precision does not reach."""

    @wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return apart


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
