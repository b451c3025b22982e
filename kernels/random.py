"""Counter-based uniform numbers: one stream per row, the same on any device.

A number is a pure function of (row key, round, stream, index), so a row's draws depend neither on the rows that share
its batch nor on how many numbers were asked for at once. The generator is SplitMix64 (Steele, Lea and Flood 2014, with
Stafford's mix 13), started for each (row, round, stream) at a hashed state.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_STREAMS = 8


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; int64 tensors shift arithmetically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def row_keys(seeds: Tensor, first_path: int, paths: int) -> Tensor:
    """Keys of the rows (history b, path p): seeds int64 [B] -> int64 [B, P]; path p of a seed is path p in any batch."""
    path = torch.arange(first_path + 1, first_path + paths + 1, dtype=torch.int64, device=seeds.device)
    return _mix(_mix(seeds)[:, None] + path * _GOLDEN)


def uniform(keys: Tensor, rounds: Tensor | int, stream: int, n: int, first: int = 0) -> Tensor:
    """Uniform numbers strictly inside (0, 1), float64 [..., n], for keys int64 [...].

    `rounds` (int or int64 [...]) counts the row's sampling rounds, `stream` (below 8) says what the numbers are for, and
    the numbers are those with index first .. first + n - 1.
    """
    state = _mix(keys + (rounds * _STREAMS + stream + 1) * _GOLDEN)
    index = torch.arange(first + 1, first + n + 1, dtype=torch.int64, device=keys.device)
    bits = _shift(_mix(state[..., None] + index * _GOLDEN), 12)
    return (bits.to(torch.float64) + 0.5) * 2.0**-52
