"""A kernel and all that it needs: to be run where its tensors are, or compiled for a GPU that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

_POINTERS = {torch.float64: "*fp64", torch.int64: "*i64"}
# Rounding as written, on every GPU and by every release of Triton: no multiplication is fused with an addition.
_EXACT = {"enable_fp_fusion": False}


@dataclass(frozen=True)
class Launch:
    """`programs` programs of a kernel, of `warps` warps each. arguments: by name, tensors contiguous; None: not there."""

    kernel: Any
    programs: int
    arguments: dict[str, Any]
    warps: int

    def run(self) -> None:
        """Start it on the device of its tensors."""
        if self.programs:
            tensor = next(t for t in self.arguments.values() if isinstance(t, Tensor))
            with torch.cuda.device_of(tensor):  # type: ignore[no-untyped-call]
                self.kernel[(self.programs,)](**self.arguments, num_warps=self.warps, **_EXACT)

    def compiled(self, capability: int) -> Any:
        """Triton's compiled kernel for an NVIDIA GPU of this compute capability (80, 90), which need not be there."""
        signature: dict[str, Any] = {}
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}

        def kind(value: Any, place: tuple[int, ...], constant: bool) -> Any:
            """The type of an argument in a signature, of each part of it where it is a tuple."""
            if isinstance(value, tuple):
                return type(value)(*(kind(part, (*place, i), constant) for i, part in enumerate(value)))
            if constant or value is None:
                constants[place] = value
                return "constexpr"
            if isinstance(value, Tensor):
                attributes[place] = [["tt.divisibility", 16]]
                return _POINTERS[value.dtype]
            return "i32"

        for place, parameter in enumerate(self.kernel.params):
            signature[parameter.name] = kind(self.arguments[parameter.name], (place,), parameter.is_constexpr)
        source = triton.compiler.ASTSource(self.kernel, signature, constants, attributes)
        options = {"num_warps": self.warps, **_EXACT}
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
