"""The two-sample comparison: right size when events depend on one another, and eyes for each kind of deviation."""

import numpy as np
import pytest
from scipy import stats

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.fidelity import (
    Comparison,
    compare,
    likelihood_difference,
    next_event_distance,
    time_rescaling,
)
from stream_tpp.evaluation.paths import Paths
from stream_tpp.processes import PAPER_WINDOW, EventSequence, Hawkes, Window, paper_process
from stream_tpp.processes.sequence import Floats, Integers


def clustered(rng: np.random.Generator, strata: Integers, horizon: float = 20.0) -> Paths:
    """Paths that each have a rate and a taste for types of their own: events of a path are strongly dependent."""
    rates = rng.gamma(2.0, 0.5, len(strata)) * (1 + strata % 3)
    tastes = rng.dirichlet([0.5, 0.5, 0.5], len(strata))
    counts = rng.poisson(rates * horizon)
    path = np.repeat(np.arange(len(strata)), counts)
    leads = rng.uniform(0, horizon, len(path))
    leads = leads[np.lexsort((leads, path))]
    types = (rng.random(len(path))[:, None] > np.cumsum(tastes, axis=1)[path]).sum(1).clip(0, 2)
    return Paths(leads, types, path, strata, horizon)


def renewal(rng: np.random.Generator, m: int = 200, n: int = 20, spread: float = 0.7) -> tuple[Floats, Integers]:
    """Log-normal gaps [m, n] with memory in the gap (autoregressive logs) and types [m, n] with memory in the type."""
    noise = rng.normal(size=(m, n)) * spread
    logs, types = np.empty((m, n)), np.empty((m, n), dtype=np.int64)
    stays = rng.random((m, n)) < 0.6
    fresh = rng.integers(0, 3, (m, n))
    logs[:, 0], types[:, 0] = noise[:, 0] / 0.8, fresh[:, 0]
    for i in range(1, n):
        logs[:, i] = 0.6 * logs[:, i - 1] + noise[:, i]
        types[:, i] = np.where(stays[:, i], types[:, i - 1], fresh[:, i])
    return np.exp(logs), types


def paths_of(gaps: Floats, types: Integers, horizon: float | None = None) -> Paths:
    m, n = gaps.shape
    leads, path = np.cumsum(gaps, axis=1).ravel(), np.repeat(np.arange(m), n)
    kept = leads <= (np.inf if horizon is None else horizon)
    return Paths(leads[kept], types.ravel()[kept], path[kept], np.zeros(m, dtype=np.int64), horizon)


def p_values(comparison: Comparison) -> dict[str, float]:
    return {test.name: test.p_value for test in comparison.tests}


def test_samples_of_one_law_are_rejected_no_more_often_than_the_level_says() -> None:
    """300 comparisons of two samples of one law whose events are anything but independent; 25 histories, 2 paths each.

    A test that takes the events as independent rejects most of them.
    """
    rng, strata, repeats = np.random.default_rng(1), np.repeat(np.arange(25), 2), 300
    found: dict[str, list[float]] = {}
    failed, naive = 0, []
    for repeat in range(repeats):
        first, second = clustered(rng, strata), clustered(rng, strata)
        comparison = compare(first, second, seed=repeat, permutations=199, level=0.05, power=False)
        failed += not comparison.passed
        for name, p_value in p_values(comparison).items():
            found.setdefault(name, []).append(p_value)
        naive.append(stats.ks_2samp(first.gaps, second.gaps).pvalue)
    assert len(found) == 9
    for level in (0.05, 0.2):
        most = stats.binom.ppf(0.9995, repeats, level)
        for name, all_found in found.items():
            assert (np.array(all_found) <= level).sum() <= most, f"{name} rejects too often at {level}"
    # Not merely conservative: tests on many distinct values are close to their level.
    for name in ("gap_ks", "gap_wasserstein", "type_chi_square", "joint_chi_square", "memory_chi_square"):
        assert stats.kstest(found[name], "uniform").pvalue > 0.001, name
    assert failed <= stats.binom.ppf(0.9995, repeats, 0.05)
    assert np.mean(np.array(naive) <= 0.05) > 0.4


def test_one_path_of_each_history_in_each_sample_is_enough() -> None:
    rng, strata, rejected = np.random.default_rng(2), np.arange(40), 0
    for repeat in range(150):
        comparison = compare(clustered(rng, strata), clustered(rng, strata), seed=repeat, permutations=199, power=False)
        rejected += p_values(comparison)["gap_ks"] <= 0.05
    assert rejected <= stats.binom.ppf(0.9995, 150, 0.05)


def test_a_deviation_of_the_size_called_detectable_is_found_four_times_in_five() -> None:
    rng, repeats = np.random.default_rng(3), 40
    sizes = {
        test.name: test.detectable
        for test in compare(paths_of(*renewal(rng)), paths_of(*renewal(rng)), permutations=399, level=0.05).tests
    }
    seen = {"gap_wasserstein": 0, "type_chi_square": 0}
    for repeat in range(repeats):
        gaps, types = renewal(rng)
        # Scaling every gap by e^d shifts its log by d; a type of the commonest half that becomes another moves probability.
        longer = paths_of(gaps * np.exp(sizes["gap_wasserstein"]), types)
        share = sizes["type_chi_square"] / np.mean(types != 2)
        moved = paths_of(gaps, np.where((types != 2) & (rng.random(types.shape) < share), 2, types))
        for name, planted in (("gap_wasserstein", longer), ("type_chi_square", moved)):
            comparison = compare(paths_of(*renewal(rng)), planted, permutations=399, seed=repeat, power=False)
            seen[name] += p_values(comparison)[name] <= 0.05 / 6
    for name, count in seen.items():
        assert stats.binom.ppf(0.001, repeats, 0.8) <= count, f"{name}: {count} of {repeats}"
    assert sum(seen.values()) < 2 * repeats  # what is called detectable is not far above what is


def test_a_lost_memory_of_the_gap_is_seen_where_the_gaps_law_is_the_same() -> None:
    rng = np.random.default_rng(4)
    gaps, types = renewal(rng)
    shuffled = paths_of(rng.permuted(gaps, axis=1), types)
    found = p_values(compare(paths_of(*renewal(rng)), shuffled, permutations=999, power=False))
    assert found["memory_chi_square"] == 0.001
    assert found["gap_ks"] > 0.01


def test_types_that_forget_the_type_before_are_seen_where_the_types_law_is_the_same() -> None:
    rng = np.random.default_rng(5)
    gaps, types = renewal(rng)
    shuffled = paths_of(gaps, rng.permuted(types, axis=1))
    found = p_values(compare(paths_of(*renewal(rng)), shuffled, permutations=999, power=False))
    assert found["joint_chi_square"] == 0.001
    assert found["type_chi_square"] > 0.01


def test_a_wrong_first_gap_is_seen_among_many_right_ones() -> None:
    rng = np.random.default_rng(6)
    gaps, types = renewal(rng)
    gaps[:, 0] *= 2
    found = p_values(compare(paths_of(*renewal(rng)), paths_of(gaps, types), permutations=999, power=False))
    assert found["first_gap_ks"] == 0.001


def test_clustering_is_seen_in_the_counts() -> None:
    rng = np.random.default_rng(7)
    bursts, even = Hawkes(1.0, 1.0, 2.0), Hawkes(2.0, 0.0, 2.0)
    window = Window(0.0, 40.0)
    first, second = (Paths.of_sequences(process.thin_rows(rng, window, 200)) for process in (bursts, even))
    found = p_values(compare(first, second, permutations=999, power=False))
    assert found["count_autocorrelation"] == 0.001
    assert found["window_count_ks"] == 0.001


def test_every_kind_of_test_is_reported_with_its_power_and_divergences() -> None:
    rng = np.random.default_rng(8)
    process = paper_process("multivariate_hawkes")
    first, second = (Paths.of_sequences(process.thin_rows(rng, PAPER_WINDOW, 60)) for _ in range(2))
    report = compare(first, second, permutations=199, level=0.05).as_json()
    tests, power, divergence = report["tests"], report["power"], report["js_divergence"]
    assert report["passed"] is True
    assert (
        set(tests)
        == set(power)
        == {
            *("gap_ks", "gap_wasserstein", "first_gap_ks", "type_chi_square", "joint_chi_square", "memory_chi_square"),
            *("count_ks", "window_count_ks", "count_autocorrelation"),
        }
    )
    assert all(0 < size < 1 for size in power.values())
    assert set(divergence) == {"gap", "type", "count"}
    assert divergence["gap"] < 0.01


def test_the_order_of_the_samples_does_not_matter_much() -> None:
    rng = np.random.default_rng(9)
    first, second = paths_of(*renewal(rng)), paths_of(*renewal(rng, spread=0.75))
    there, back = (p_values(compare(*pair, permutations=999, power=False)) for pair in ((first, second), (second, first)))
    for name, p_value in there.items():
        assert back[name] == pytest.approx(p_value, abs=0.06), name


def test_paths_without_a_horizon_are_compared_without_counts() -> None:
    rng = np.random.default_rng(10)
    found = p_values(compare(paths_of(*renewal(rng)), paths_of(*renewal(rng)), permutations=199, power=False))
    assert not any("count" in name for name in found)


def test_samples_that_do_not_match_are_refused() -> None:
    rng = np.random.default_rng(11)
    gaps, types = renewal(rng, m=4)
    whole, cut = paths_of(gaps, types), paths_of(gaps, types, horizon=5.0)
    with pytest.raises(StreamTppError, match="can't be compared"):
        compare(whole, cut)
    elsewhere = Paths(whole.leads, whole.types, whole.path, whole.strata + 1, None)
    with pytest.raises(StreamTppError, match="same histories"):
        compare(whole, elsewhere)
    silent = Paths(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.zeros(3, dtype=np.int64), 1.0)
    with pytest.raises(StreamTppError, match="no simulated events"):
        compare(silent, silent)


def test_one_type_alone_leaves_out_the_comparison_of_types() -> None:
    rng = np.random.default_rng(12)
    process = paper_process("hawkes")
    first, second = (Paths.of_sequences(process.thin_rows(rng, Window(0.0, 10.0), 50)) for _ in range(2))
    comparison = compare(first, second, permutations=199, power=False)
    assert "type_chi_square" not in p_values(comparison)
    assert comparison.js_divergence["type"] == 0.0


def test_time_rescaling_passes_the_truth_and_catches_another_process() -> None:
    truth = paper_process("multivariate_hawkes")
    sequences = truth.thin_rows(np.random.default_rng(13), PAPER_WINDOW, 50)
    right = time_rescaling(sequences, truth)
    assert right.statistic < right.band
    assert right.p_value > 0.05
    assert right.events == sum(len(sequence) for sequence in sequences)
    swapped = [EventSequence(s.times, 1 - s.types, s.window) for s in sequences]
    assert time_rescaling(swapped, truth, of_type=0).p_value < 0.001


def test_the_likelihood_difference_of_a_models_own_samples_is_its_divergence_from_the_truth() -> None:
    model, truth = Hawkes(1.2, 0.0, 1.0), Hawkes(1.0, 0.0, 1.0)
    sequences = model.thin_rows(np.random.default_rng(14), Window(0.0, 50.0), 400)
    own = np.array([model.log_likelihood(sequence) for sequence in sequences])
    found = likelihood_difference(sequences, own, truth)
    divergence = 50 * (1.2 * np.log(1.2) - 0.2)
    assert abs(found.mean - divergence) < 4 * found.standard_error
    assert found.per_event == pytest.approx(found.mean / 60, rel=0.05)


def test_next_event_distances_of_known_samples() -> None:
    gaps = (np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]))
    types = (np.array([0, 0, 0]), np.array([2, 2, 2]))
    found = next_event_distance(gaps, types)
    assert [found.gap, found.type, found.type_variation] == pytest.approx([1.0, 2.0, 1.0])


def test_next_event_distances_of_one_law_are_what_chance_gives() -> None:
    rng = np.random.default_rng(15)
    gaps = (rng.exponential(size=5000), rng.exponential(size=5000))
    types = (rng.integers(0, 5, 5000), rng.integers(0, 5, 5000))
    found = next_event_distance(gaps, types)
    assert found.p_gap > 0.01
    assert found.p_type > 0.01
    assert found.gap < 3 * found.gap_by_chance
    wrong = next_event_distance((gaps[0], gaps[1] * 1.1), (types[0], np.minimum(types[1], 3)))
    assert wrong.p_gap == wrong.p_type == 1 / 200
