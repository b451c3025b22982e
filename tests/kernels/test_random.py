"""Uniform numbers: inside (0, 1), flat, independent in every direction, and a function of their coordinates alone."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from stream_tpp.kernels.random import row_keys, uniform

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
LEVEL = 1e-4


def mix(x: int) -> int:
    """Stafford's mix 13 in Python's own integers, as Steele, Lea and Flood print it."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def unmix(x: int) -> int:
    """The inverse of `mix`."""
    x ^= (x >> 31) ^ (x >> 62)
    x = (x * pow(0x94D049BB133111EB, -1, 2**64)) & MASK
    x ^= (x >> 27) ^ (x >> 54)
    x = (x * pow(0xBF58476D1CE4E5B9, -1, 2**64)) & MASK
    return x ^ (x >> 30) ^ (x >> 60)


def written_out(key: int, sampling_round: int, stream: int, index: int) -> float:
    state = mix((key + (8 * sampling_round + stream + 1) * GOLDEN) & MASK)
    return ((mix((state + (index + 1) * GOLDEN) & MASK) >> 12) + 0.5) * 2.0**-52


def key_of(bits: int) -> Tensor:
    """The key whose first number, in round 0 and stream 0, comes from these 64 bits."""
    key = (unmix((unmix(bits) - GOLDEN) & MASK) - GOLDEN) & MASK
    return torch.tensor([key - 2**64 if key >= 2**63 else key])


def flat(numbers: Tensor, cells: int = 64) -> float:
    counts = np.bincount((numbers.flatten().numpy() * cells).astype(np.int64), minlength=cells)
    return float(stats.chisquare(counts).pvalue)


def independent(one: Tensor, other: Tensor, cells: int = 16) -> float:
    """p-value of "the pairs (one, other) are uniform over the square"."""
    return flat((torch.floor(one.flatten() * cells) + other.flatten()) / cells, cells * cells)


def test_numbers_are_those_of_splitmix64_whatever_the_coordinates() -> None:
    keys = [0, 1, -1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF]
    for sampling_round, stream, first in [(0, 0, 0), (1, 7, 5), (123_456, 3, 10**12)]:
        numbers = uniform(torch.tensor(keys), sampling_round, stream, 4, first)
        expected = [[written_out(key, sampling_round, stream, first + i) for i in range(4)] for key in keys]
        assert numbers.tolist() == expected


def test_numbers_stay_what_they_have_always_been() -> None:
    """A forecast is reproduced from its seed by any release: these may never change."""
    keys = row_keys([0, 20_26, -1], first_path=0, paths=2)
    assert keys.tolist() == [
        [-2152535657050944081, 7960286522194355700],
        [-2480092443086543255, -6555949405882706327],
        [-6523613405836042406, -5438901102636068674],
    ]
    assert uniform(keys[1], 3, 2, 3).tolist() == [
        [0.4748656758701352, 0.3160880817561861, 0.9492518187803117],
        [0.10709460460696929, 0.6095900735618486, 0.7132754579823032],
    ]


@pytest.mark.parametrize(("bits", "number"), [(0, 0.5 * 2.0**-52), (MASK, 1.0 - 0.5 * 2.0**-52)])
def test_the_least_and_the_greatest_number_are_inside_the_unit_interval(bits: int, number: float) -> None:
    drawn = uniform(key_of(bits), 0, 0, 1)
    assert drawn.item() == number
    assert 0.0 < drawn.item() < 1.0
    assert bool(torch.isfinite(torch.log(drawn)).all())


def test_numbers_are_flat_along_every_coordinate() -> None:
    n = 1 << 16
    assert flat(uniform(torch.tensor(17), 0, 0, n)) > LEVEL
    assert flat(uniform(torch.arange(n), 0, 0, 1)) > LEVEL
    assert flat(uniform(row_keys(range(256), 0, 256), 5, 1, 1)) > LEVEL
    assert flat(torch.cat([uniform(torch.arange(64), r, 4, 8) for r in range(128)])) > LEVEL
    fine = uniform(torch.tensor(17), 0, 0, n) * 2.0**20
    assert flat(fine - fine.floor()) > LEVEL


def test_neighbours_in_index_key_seed_path_round_and_stream_are_independent() -> None:
    n = 1 << 16
    along, keys = uniform(torch.tensor(3), 0, 0, n + 1), torch.arange(n)
    paths = uniform(row_keys(range(128), 0, 513), 0, 1, 1)[..., 0]
    seeds = uniform(row_keys(range(129), 0, 512), 0, 1, 1)[..., 0]
    pairs = [
        (along[:-1], along[1:]),
        (uniform(keys, 0, 1, 1), uniform(keys + 1, 0, 1, 1)),
        (uniform(keys, 0, 1, 1), uniform(-keys, 0, 1, 1)),
        (paths[:, :-1], paths[:, 1:]),
        (seeds[:-1], seeds[1:]),
        (uniform(keys, 4, 2, 1), uniform(keys, 5, 2, 1)),
        *((uniform(keys, 4, a, 1), uniform(keys, 4, b, 1)) for a, b in combinations(range(5), 2)),
        (uniform(keys, 0, 7, 1), uniform(keys, 1, 0, 1)),
    ]
    assert min(independent(one, other) for one, other in pairs) > LEVEL


def test_no_two_coordinates_share_a_number() -> None:
    keys = row_keys(range(20), 0, 10)
    numbers = torch.cat([uniform(keys, r, s, 8, f).flatten() for r in range(6) for s in range(8) for f in (0, 8)])
    assert len(set(numbers.tolist())) == len(numbers)


def test_a_rows_numbers_depend_on_nothing_else() -> None:
    keys = row_keys([5, 9, 2], 0, 4)
    together = uniform(keys, 6, 3, 10)
    assert torch.equal(uniform(keys[1, 2], 6, 3, 10), together[1, 2])
    assert torch.equal(uniform(keys.flip(0), 6, 3, 10).flip(0), together)
    assert torch.equal(uniform(keys, 6, 3, 4), together[..., :4])
    assert torch.equal(uniform(keys, 6, 3, 4, 5), together[..., 5:9])
    first = torch.arange(12).reshape(3, 4) % 7
    each = torch.stack([together.reshape(12, 10)[row, f : f + 3] for row, f in enumerate(first.flatten().tolist())])
    assert torch.equal(uniform(keys, 6, 3, 3, first), each.reshape(3, 4, 3))


def test_a_path_of_a_seed_is_that_path_in_any_batch() -> None:
    keys = row_keys([11, 12, 13], 0, 6)
    assert torch.equal(row_keys([13, 11], 4, 2), keys[[2, 0], 4:])
    assert torch.equal(row_keys([11 + 2**64, 12 - 2**64], 0, 6), keys[:2])
