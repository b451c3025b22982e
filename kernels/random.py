"""Counter-based uniform numbers: one stream per row, the same on any device.

A number is a pure function of (row key, round, stream, index), so a row's draws depend neither on the rows that share
its batch nor on how many numbers were asked for at once. The generator is SplitMix64 (Steele, Lea and Flood 2014, with
Stafford's mix 13), started for each (row, round, stream) at a hashed state.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_STREAMS = 8

# What the numbers of a sampling round are for.
DRAFT, ACCEPT, RESIDUAL, BONUS, COINS = range(5)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; int64 tensors shift arithmetically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    """The lowest 64 bits, as int64."""
    return (number + 2**63) % 2**64 - 2**63


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def row_keys(seeds: Sequence[int], first_path: int, paths: int, device: torch.device | None = None) -> Tensor:
    """Keys of the rows (history b, path p), int64 [B, P], from B seeds; path p of a seed is path p in any batch."""
    seed = torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int64, device=device)
    path = torch.arange(first_path + 1, first_path + paths + 1, dtype=torch.int64, device=device)
    return _mix(_mix(seed)[:, None] + path * _GOLDEN)


def uniform(keys: Tensor, sampling_round: int, stream: int, n: int, first: Tensor | int = 0) -> Tensor:
    """Uniform numbers strictly inside (0, 1), float64 [..., n], for keys int64 [...].

    `stream` (below 8) says what the numbers of a sampling round are for, DRAFT and so on; they are those with index first ..
    first + n - 1, where `first` is one for all rows or int64 [...].
    """
    state = _mix(keys + _signed((sampling_round * _STREAMS + stream + 1) * _GOLDEN))
    index = torch.arange(1, n + 1, dtype=torch.int64, device=keys.device)
    if isinstance(first, Tensor):
        first = first[..., None]
    bits = _shift(_mix(state[..., None] + (index + first) * _GOLDEN), 12)
    return (bits.to(torch.float64) + 0.5) * 2.0**-52
