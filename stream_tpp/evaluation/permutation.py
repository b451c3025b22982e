"""Permutation tests whose unit is the whole path, with Holm's correction and the power that they have.

Events of one path depend on one another, so tests that take them as independent reject far too often. Under the null
hypothesis the paths that go on from one history are exchangeable between the two samples, whatever happens inside them:
dividing them anew within each history gives the exact law of any statistic (Phipson and Smyth 2010 for the p-value).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_tpp.evaluation.statistics import Statistic
from stream_tpp.processes.sequence import Floats, Integers

POWER = 0.8
SMALLEST, LARGEST = 1e-5, 4.0
_ROUNDING = 1e-9
_HALVINGS = 12
_DRAWS_FOR_POWER = 500


@dataclass(frozen=True, slots=True)
class Tested:
    """One statistic on the two samples, and what it would have seen.

    detectable: the smallest deviation (in `unit`) that this test at this size of samples finds with 80% power, at the level
    that Holm's correction asks of the smallest p-value. It is computed by planting deviations of growing size into the
    permuted samples, half in each, and counting how often the statistic passes the permutations' critical value; inf where
    none up to `LARGEST` is found, nan where it was not asked for.
    """

    name: str
    unit: str
    deviation: float
    p_value: float
    corrected: float
    detectable: float


class Divisions:
    """The division of paths into two samples that was observed, and `count` random ones, within strata."""

    def __init__(self, in_first: NDArray[np.bool_], strata: Integers, count: int, rng: np.random.Generator) -> None:
        """in_first [m]: whether each path is of the first sample; strata [m]: paths of one law."""
        by_stratum = np.argsort(strata, kind="stable")
        rank = np.unique(strata, return_inverse=True)[1].ravel()
        shuffled = np.argsort(rank + rng.random((count, len(strata))), axis=1)
        # The k-th path in a shuffle of strata laid end to end takes the place of the k-th in the unshuffled order.
        divisions = np.empty((count + 1, len(strata)), dtype=np.float64)
        divisions[0] = in_first
        np.put_along_axis(divisions[1:], shuffled, np.broadcast_to(in_first[by_stratum], shuffled.shape).astype(np.float64), 1)
        self._divisions = np.ascontiguousarray(divisions.T)

    def sums(self, statistic: Statistic) -> tuple[Floats, Floats]:
        """Sums [C, 1 + count] of both samples; column 0 is what was observed."""
        first: Floats = statistic.contributions.T @ self._divisions
        total = np.asarray(statistic.contributions.sum(axis=0)).reshape(-1, 1)
        return first, total - first


def run(statistics: Sequence[Statistic], divisions: Divisions, level: float, power: bool = True) -> list[Tested]:
    """Test each statistic; `level` is the chance that any of them rejects samples of one law."""
    drafts = []
    for statistic in statistics:
        first, second = divisions.sums(statistic)
        values = statistic.value(first, second)
        p_value = float(np.mean(values >= values[0] * (1 - _ROUNDING)))
        observed = float(statistic.deviation(first[:, :1], second[:, :1])[0])
        smallest = float("nan")
        if power:
            smallest = detectable(statistic, first[:, 1:], second[:, 1:], level / len(statistics))
        drafts.append((statistic, observed, p_value, smallest))
    corrected = holm([p_value for _, _, p_value, _ in drafts])
    return [
        Tested(statistic.name, statistic.unit, observed, p_value, adjusted, smallest)
        for (statistic, observed, p_value, smallest), adjusted in zip(drafts, corrected, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down corrected p-values: the chance of any false rejection stays below the level, however they depend."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected.tolist()


def detectable(statistic: Statistic, first: Floats, second: Floats, level: float) -> float:
    """The smallest deviation found with 80% power in the permuted sums [C, R]; see `Tested`."""
    critical = float(np.quantile(statistic.value(first, second), 1 - level, method="higher"))
    first, second = first[:, :_DRAWS_FOR_POWER], second[:, :_DRAWS_FOR_POWER]

    def seen(size: float) -> bool:
        planted = statistic.value(statistic.plant(first, size / 2), statistic.plant(second, -size / 2))
        return float(np.mean(planted > critical)) >= POWER

    low, high = SMALLEST, LARGEST
    if not seen(high):
        return float("inf")
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high
