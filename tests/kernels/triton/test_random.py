# mypy: allow-untyped-decorators
"""Inside a kernel the uniform numbers are those of the reference, bit for bit."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stream_tpp.kernels.random import row_keys, uniform
from stream_tpp.kernels.triton.random import stream_state
from stream_tpp.kernels.triton.random import uniform as uniform_in_kernel


@triton.jit(do_not_specialize=["sampling_round", "stream"])
def fill(keys: Any, first: Any, out: Any, sampling_round: Any, stream: Any, N: tl.constexpr) -> None:
    row, index = tl.program_id(0), tl.arange(0, N)
    state = stream_state(tl.load(keys + row), sampling_round, stream)
    tl.store(out + row * N + index, uniform_in_kernel(state, tl.load(first + row) + index))


def filled(keys: Tensor, first: Tensor, sampling_round: int, stream: int) -> Tensor:
    out = torch.empty(len(keys), 16, dtype=torch.float64)
    fill[(len(keys),)](keys, first, out, sampling_round, stream, 16)
    return out


def test_numbers_are_the_references_bit_for_bit(interpreted: Any) -> None:
    keys = torch.cat([row_keys([3], 0, 5)[0], torch.tensor([0, -1, 2**63 - 1, -(2**63)])])
    first = torch.tensor([0, 1, 7, 10**12, (5 << 40) + 3, 0, 2**40, 4, 9])
    for sampling_round, stream in [(0, 0), (1, 3), (16, 2), (100_000, 7)]:
        there = interpreted(filled, keys, first, sampling_round, stream)
        assert torch.equal(there, uniform(keys, sampling_round, stream, 16, first))
