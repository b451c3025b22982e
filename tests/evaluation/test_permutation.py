import numpy as np
import pytest

from stream_tpp.evaluation.permutation import Divisions, holm
from stream_tpp.evaluation.statistics import ChiSquare, jensen_shannon


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_each_division_gives_each_history_as_many_paths_in_each_sample_as_it_had() -> None:
    strata = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    in_first = np.array([True, True, False, True, False, False, True, False, True])
    divisions = Divisions(in_first, strata, 50, np.random.default_rng(1))
    # With its stratum as the only cell, the sums of a table are the numbers of paths by stratum.
    table = ChiSquare("paths", np.zeros_like(strata), strata, np.arange(9), 9)
    first, second = divisions.sums(table)
    np.testing.assert_array_equal(first, np.repeat([[2.0], [1.0], [2.0]], 51, axis=1))
    np.testing.assert_array_equal(second, np.repeat([[1.0], [1.0], [2.0]], 51, axis=1))


def test_every_division_of_a_history_is_as_likely_as_any_other() -> None:
    strata, in_first = np.zeros(4, dtype=np.int64), np.array([True, True, False, False])
    divisions = Divisions(in_first, strata, 6000, np.random.default_rng(2))
    each_path = ChiSquare("paths", np.zeros(4, dtype=np.int64), np.arange(4), np.arange(4), 4)
    chosen = divisions.sums(each_path)[0][:, 1:]
    _, counts = np.unique(chosen, axis=1, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 130


def test_jensen_shannon_is_0_bits_between_equal_shares_and_1_between_disjoint_ones() -> None:
    first = np.array([[3.0, 4.0], [1.0, 0.0]])
    second = np.array([[6.0, 0.0], [2.0, 2.0]])
    np.testing.assert_allclose(jensen_shannon(first, second), [0.0, 1.0], atol=1e-12)


def test_jensen_shannon_is_half_the_divergences_from_the_mean() -> None:
    p, q = np.array([0.5, 0.5]), np.array([0.75, 0.25])
    mean = (p + q) / 2
    expected = (p @ np.log2(p / mean) + q @ np.log2(q / mean)) / 2
    assert jensen_shannon(10 * p[:, None], 4 * q[:, None])[0] == pytest.approx(expected)
