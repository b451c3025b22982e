"""Do two samplers draw from one law? And is it the law of a process that we know?

`compare` is the two-sample question: speculative against autoregressive paths of one model. `time_rescaling`,
`likelihood_difference` and `next_event_distance` are the figures of the TPP-SD paper (arXiv 2507.09252, section 5.1): D_KS,
delta L and D_WS, each with what noise alone would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse, stats

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.paths import Paths
from stream_tpp.evaluation.permutation import Divisions, Tested, run
from stream_tpp.evaluation.statistics import (
    Autocorrelation,
    ChiSquare,
    KolmogorovSmirnov,
    Statistic,
    Wasserstein,
    jensen_shannon,
)
from stream_tpp.processes import EventSequence, Process
from stream_tpp.processes.sequence import Floats, Integers

GRID = 400
JS_BINS = {"gap": 50, "count": 10}
MEMORY_BINS = 8
MOST_COUNT = 200
LAGS = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found; `passed` when no corrected p-value is below `level`.

    js_divergence: bits, of the gap (50 bins of equal frequency), the type and the count per window (10 bins); js_by_chance:
    their means over the permutations, which is what two samples of one law of this size show.
    """

    passed: bool
    level: float
    tests: tuple[Tested, ...]
    js_divergence: dict[str, float]
    js_by_chance: dict[str, float]
    events: tuple[int, int]
    paths: tuple[int, int]

    def as_json(self) -> dict[str, Any]:
        """The keys of `stream-tpp evaluate fidelity --json`."""
        return {
            "passed": self.passed,
            "level": self.level,
            "tests": {test.name: test.corrected for test in self.tests},
            "uncorrected": {test.name: test.p_value for test in self.tests},
            "deviation": {test.name: test.deviation for test in self.tests},
            "power": {test.name: test.detectable for test in self.tests},
            "unit": {test.name: test.unit for test in self.tests},
            "js_divergence": self.js_divergence,
            "js_by_chance": self.js_by_chance,
            "events": list(self.events),
            "paths": list(self.paths),
        }


def compare(
    first: Paths,
    second: Paths,
    *,
    seed: int = 0,
    permutations: int = 1999,
    level: float = 0.01,
    power: bool = True,
) -> Comparison:
    """Two-sample tests of the paths of two samplers, by permutation of whole paths within each history.

    The samples must have been drawn with different seeds, from the same histories (strata), over the same horizon; paths of
    one history in one sample must be independent. gap: KS and Wasserstein of all gaps; first_gap: KS of the first event of
    each path; type: chi-square; count: KS of a path's events, and of the events in equal windows of it; joint: chi-square
    of (gap bin, type) given the type before; memory: chi-square of the gap's bin given the bin of the gap before;
    autocorrelation of the counts in windows. power=False leaves out what each test would have seen (nan), which takes most
    of the time. Raises StreamTppError where the samples don't match or are empty.
    """
    pooled = _pool(first, second)
    divisions = Divisions(np.arange(len(pooled)) < len(first), pooled.strata, permutations, np.random.default_rng(seed))
    statistics = _statistics(pooled)
    tests = run([s for s in statistics.values() if s.applies], divisions, level, power)
    observed, by_chance = _divergences(pooled, statistics, divisions)
    return Comparison(
        passed=all(test.corrected >= level for test in tests),
        level=level,
        tests=tuple(tests),
        js_divergence=observed,
        js_by_chance=by_chance,
        events=(len(first.leads), len(second.leads)),
        paths=(len(first), len(second)),
    )


def _pool(first: Paths, second: Paths) -> Paths:
    if first.horizon != second.horizon:
        raise StreamTppError(f"Paths over {first.horizon} and over {second.horizon} seconds can't be compared.")
    if set(first.strata.tolist()) != set(second.strata.tolist()):
        raise StreamTppError("The two samples must go on from the same histories.")
    if not len(first.leads) + len(second.leads):
        raise StreamTppError("There are no simulated events to compare: take a longer horizon.")
    return first.followed_by(second)


def _statistics(pooled: Paths) -> dict[str, Statistic]:
    m, log_gap = len(pooled), _log_gaps(pooled.gaps)
    edges = _quantile_edges(log_gap, GRID)
    gap_columns = _incidence(pooled.path, np.searchsorted(edges, log_gap), m, len(edges) + 1)
    first = pooled.starts
    first_edges = _quantile_edges(log_gap[first], GRID)
    first_gap = np.full(m, len(first_edges) + 1)  # a path without events lies beyond the last
    first_gap[pooled.path[first]] = np.searchsorted(first_edges, log_gap[first])
    bins = np.searchsorted(_quantile_edges(log_gap, MEMORY_BINS), log_gap)
    inner = np.flatnonzero(~first)
    before = np.where(first, -1, np.roll(pooled.types, 1))
    found: list[Statistic] = [
        KolmogorovSmirnov("gap_ks", gap_columns),
        Wasserstein("gap_wasserstein", gap_columns, np.append(edges, edges[-1] if len(edges) else 0.0)),
        KolmogorovSmirnov("first_gap_ks", _incidence(np.arange(m), first_gap, m, len(first_edges) + 2)),
        ChiSquare("type_chi_square", pooled.types, np.zeros_like(pooled.types), pooled.path, m),
        ChiSquare("joint_chi_square", bins * (pooled.types.max() + 1) + pooled.types, before, pooled.path, m),
        ChiSquare("memory_chi_square", bins[inner], bins[inner - 1], pooled.path[inner], m),
    ]
    if pooled.horizon is not None:
        found += _count_statistics(pooled, pooled.horizon)
    return {statistic.name: statistic for statistic in found}


def _count_statistics(pooled: Paths, horizon: float) -> list[Statistic]:
    m = len(pooled)
    windows = int(np.clip(len(pooled.leads) / m / 2, 4, 16))
    window = np.minimum((pooled.leads / horizon * windows).astype(np.int64), windows - 1)
    counts = np.zeros((m, windows), dtype=np.int64)
    np.add.at(counts, (pooled.path, window), 1)
    totals = counts.sum(axis=1)
    edges = _quantile_edges(totals.astype(np.float64), GRID)
    rows = np.repeat(np.arange(m), windows)
    per_window = np.minimum(counts, MOST_COUNT).ravel()
    return [
        KolmogorovSmirnov("count_ks", _incidence(np.arange(m), np.searchsorted(edges, totals), m, len(edges) + 1)),
        KolmogorovSmirnov("window_count_ks", _incidence(rows, per_window, m, int(per_window.max()) + 1)),
        Autocorrelation("count_autocorrelation", counts.astype(np.float64), min(LAGS, windows - 1)),
    ]


def _divergences(
    pooled: Paths, statistics: dict[str, Statistic], divisions: Divisions
) -> tuple[dict[str, float], dict[str, float]]:
    observed, by_chance = {}, {}
    sources = {"gap": "gap_ks", "type": "type_chi_square", "count": "window_count_ks"}
    for name, source in sources.items():
        if source not in statistics:
            continue
        first, second = divisions.sums(statistics[source])
        if name in JS_BINS:
            starts = _equal_blocks(first[:, 0] + second[:, 0], JS_BINS[name])
            first, second = np.add.reduceat(first, starts, axis=0), np.add.reduceat(second, starts, axis=0)
        divergence = jensen_shannon(first, second)
        observed[name], by_chance[name] = float(divergence[0]), float(divergence[1:].mean())
    return observed, by_chance


def _equal_blocks(mass: Floats, blocks: int) -> Integers:
    """First columns of at most `blocks` runs of columns that hold about the same mass [C]."""
    below = np.cumsum(mass) - mass
    block = np.floor(blocks * below / mass.sum())
    return np.flatnonzero(np.diff(block, prepend=-1) > 0)


def _log_gaps(gaps: Floats) -> Floats:
    """Natural logs; a tie counts as the smallest gap that is none."""
    positive = gaps[gaps > 0]
    smallest = float(positive.min()) if len(positive) else 1.0
    logs: Floats = np.log(np.maximum(gaps, smallest))
    return logs


def _quantile_edges(values: Floats, bins: int) -> Floats:
    """At most bins - 1 distinct inner edges; a value equal to an edge lies below it."""
    if not len(values):
        return np.empty(0)
    edges = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))
    inner: Floats = edges[edges < values.max()]
    return inner


def _incidence(rows: Integers, columns: Integers, height: int, width: int) -> sparse.csr_array:
    return sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(height, width)).tocsr()


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Time-rescaling residuals of sequences against Exp(1): the paper's D_KS.

    statistic: Kolmogorov-Smirnov distance; band: 1.36 / sqrt(n), which one in twenty samples of the truth leaves; p_value:
    exact; events: n.
    """

    statistic: float
    band: float
    p_value: float
    events: int


def time_rescaling(sequences: Sequence[EventSequence], process: Process, of_type: int | None = None) -> Rescaling:
    """Did `sequences` come from `process`? All types together, or the events of one type against its own intensity.

    The residuals are independent under the truth (see `Process.residuals`), so here the events are the units. Raises
    StreamTppError when there are no events.
    """
    residuals = process.residuals(sequences, of_type)
    if not len(residuals):
        raise StreamTppError("Time rescaling needs at least one event.")
    result = stats.kstest(residuals, "expon")
    return Rescaling(float(result.statistic), 1.36 / float(np.sqrt(len(residuals))), float(result.pvalue), len(residuals))


@dataclass(frozen=True, slots=True)
class LikelihoodDifference:
    """Mean over sequences of log p_model - log p_truth, with its standard error; per_event divides by the mean length.

    On sequences drawn from the model the mean estimates KL(model || truth), never negative but for noise; on sequences of
    the truth, minus KL(truth || model). Its absolute value is the paper's delta L.
    """

    mean: float
    standard_error: float
    per_event: float


def likelihood_difference(
    sequences: Sequence[EventSequence], model_log_likelihoods: Floats, process: Process
) -> LikelihoodDifference:
    """Compare the model's log likelihood of each sequence (per unit of the process's time, [m]) with the truth's."""
    truth = np.array([process.log_likelihood(sequence) for sequence in sequences])
    difference = np.asarray(model_log_likelihoods, dtype=np.float64) - truth
    events = float(np.mean([len(sequence) for sequence in sequences]))
    error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else float("nan")
    return LikelihoodDifference(float(difference.mean()), error, float(difference.mean() / max(events, 1e-300)))


@dataclass(frozen=True, slots=True)
class NextEventDistance:
    """Distances between two samples of the next event after one history: the paper's D_WS.

    gap: 1-Wasserstein distance in seconds; type: 1-Wasserstein distance of the type numbers, as the paper has it;
    type_variation: total variation of the types, which no renumbering changes. gap_by_chance, type_by_chance,
    type_variation_by_chance: means of the same over random divisions of all draws, what one law gives at this many draws;
    p_gap, p_type: how often a random division is as far apart, in the gap and in the variation of the types.
    """

    gap: float
    type: float
    type_variation: float
    gap_by_chance: float
    type_by_chance: float
    type_variation_by_chance: float
    p_gap: float
    p_type: float


def next_event_distance(
    gaps: tuple[Floats, Floats], types: tuple[Integers, Integers], *, divisions: int = 199, seed: int = 0
) -> NextEventDistance:
    """Compare two samples, each of independent draws of (gap [N] in seconds, type [N]) after the same history.

    The paper takes N = 100 draws, at which the gap's distance by chance alone is about 0.1 of its mean; take 10,000.
    """
    rng = np.random.default_rng(seed)
    all_gaps, all_types = np.concatenate(gaps), np.concatenate(types)
    if not len(gaps[0]) or not len(gaps[1]):
        raise StreamTppError("The distance of next events needs draws in both samples.")

    def distances(order: Integers) -> tuple[float, float, float]:
        one, other = order[: len(gaps[0])], order[len(gaps[0]) :]
        shares = [np.bincount(all_types[part], minlength=int(all_types.max()) + 1) / len(part) for part in (one, other)]
        apart = shares[0] - shares[1]
        gap = float(stats.wasserstein_distance(all_gaps[one], all_gaps[other]))
        return gap, float(np.abs(np.cumsum(apart)).sum()), float(np.abs(apart).sum() / 2)

    observed = distances(np.arange(len(all_gaps)))
    chance = np.array([distances(rng.permutation(len(all_gaps))) for _ in range(divisions)])
    as_far = (1 + (chance >= np.array(observed) * (1 - 1e-9)).sum(axis=0)) / (1 + divisions)
    means = chance.mean(axis=0)
    gap, kind, variation = (float(mean) for mean in means)
    return NextEventDistance(*observed, gap, kind, variation, float(as_far[0]), float(as_far[2]))
