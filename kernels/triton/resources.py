"""What the kernels take of a GPU, read off their machine code with no GPU at hand."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from stream_tpp.kernels.triton import mixture, verification
from stream_tpp.kernels.triton.launch import Launch


class Resources(NamedTuple):
    """Of a thread: registers, bytes of stack, instructions that spill to local memory. Of a program: bytes of shared memory."""

    registers: int
    stack: int
    spill_loads: int
    spill_stores: int
    shared: int


def resources(launch: Launch, capability: int) -> Resources:
    """Of a kernel compiled for an NVIDIA GPU of this compute capability (80, 90)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        compiled = launch.compiled(capability)
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = _dumped("--dump-resource-usage", file.name), _dumped("--dump-sass", file.name)
    registers, stack = (int(re.findall(rf"{name}:(\d+)", usage)[-1]) for name in ("REG", "STACK"))
    loads, stores = (len(re.findall(rf"\b{name}\b", code)) for name in ("LDL", "STL"))
    return Resources(registers, stack, loads, stores, compiled.metadata.shared)


def launches(components: int, types: int) -> dict[str, Launch]:
    """Every kernel, with arguments of a model of this size; `joint` with and without a quiet time so far."""
    y = torch.zeros(2, 4, dtype=torch.float64)
    law = _law(y.shape, components, types)
    longer = _law(torch.Size((2, 5)), components, types)
    quiet = law._replace(y_elapsed=y, log_tail=y), longer._replace(y_elapsed=longer.locs[..., 0], log_tail=longer.locs[..., 0])
    k, limits = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    gap, u = law[:3], torch.zeros(2, 4, 2, dtype=torch.float64)
    return {
        "log_density": mixture.prepared(mixture.log_density_kernel, y, None, *gap)[0],
        "log_survival": mixture.prepared(mixture.log_survival_kernel, y, None, *gap)[0],
        "sample": mixture.prepared(mixture.sample_kernel, None, u, *gap)[0],
        "sample_above": mixture.prepared(mixture.sample_above_kernel, y, u, *gap)[0],
        "joint": verification.prepared(longer, law, y, k, limits, limits, 0)[0],
        "joint, quiet until now": verification.prepared(quiet[1], quiet[0], y, k, limits, limits, 0)[0],
    }


def _law(shape: torch.Size, components: int, types: int) -> verification.Mixtures:
    def zeros(last: int) -> Tensor:
        return torch.zeros(*shape, last, dtype=torch.float64)

    return verification.Mixtures(zeros(components), zeros(components), zeros(components), zeros(types), None, None)


def _dumped(what: str, path: str) -> str:
    command = (triton.knobs.nvidia.cuobjdump.path, what, path)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
