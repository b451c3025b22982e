"""One public function for each operation: a Triton kernel on CUDA, the PyTorch reference everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def triton_on_cuda(home: str) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Decorate a reference: for CUDA tensors the function of its name in `stream_tpp.kernels.triton.<home>` takes over.

    Not where gradients are asked for, which the kernels don't have, nor where Triton is not installed. Triton is imported
    when it is first needed. The reference stays at hand as `__wrapped__`.
    """

    def decorate(reference: Callable[P, Tensor]) -> Callable[P, Tensor]:
        @wraps(reference)
        def operation(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            tensors: tuple[Any, ...] = args
            if not tensors[0].is_cuda or _differentiated(tensors) or not triton_is_installed():
                return reference(*args, **kwargs)
            kernel: Callable[P, Tensor] = getattr(import_module(f"stream_tpp.kernels.triton.{home}"), reference.__name__)
            return kernel(*args, **kwargs)

        return operation

    return decorate


@cache
def triton_is_installed() -> bool:
    """Whether there is a Triton to import: PyTorch brings it on Linux."""
    return find_spec("triton") is not None


def _differentiated(tensors: tuple[Tensor, ...]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
