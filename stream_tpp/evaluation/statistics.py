"""Two-sample statistics as functions of sums over paths.

Each path contributes a row of numbers; a statistic sees the two samples only through the sums of their paths' rows. A
permutation of whole paths is then one matrix product, and events may depend on one another within a path as they like.

Sums have shape [C, R]: C columns of the contributions, R ways of dividing the paths among the samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse

from stream_tpp.processes.sequence import Floats, Integers

RAREST_CELL = 20
"""Cells of a table with fewer events than this in both samples together are put into one."""


class Statistic(ABC):
    """A deviation between two samples. `unit` says in words what the deviation is measured in."""

    unit: str

    def __init__(self, name: str, contributions: Any) -> None:
        self.name = name
        self.contributions = sparse.csr_array(contributions)

    @abstractmethod
    def value(self, first: Floats, second: Floats) -> Floats:
        """What is compared with its permutations, [R]; larger is further apart."""

    @abstractmethod
    def deviation(self, first: Floats, second: Floats) -> Floats:
        """The same difference in its unit, [R]."""

    @abstractmethod
    def plant(self, sums: Floats, size: float) -> Floats:
        """Sums [C, R] of a sample that deviates by `size` (in the unit; may be negative) from the law it came from."""

    @property
    def applies(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.contributions.shape[1] > 1 and self.contributions.sum() > 0)

    def _pooled(self) -> Floats:
        pooled: Floats = np.asarray(self.contributions.sum(axis=0), dtype=np.float64).ravel()
        return pooled


class KolmogorovSmirnov(Statistic):
    """Largest difference of two distribution functions on ordered columns. The planted deviation is a shift of the median."""

    unit = "largest difference of distribution functions, for a shift of location"

    def value(self, first: Floats, second: Floats) -> Floats:
        largest: Floats = np.abs(_cdf(first) - _cdf(second)).max(axis=0)
        return largest

    def deviation(self, first: Floats, second: Floats) -> Floats:
        return self.value(first, second)

    def plant(self, sums: Floats, size: float) -> Floats:
        planted: Floats = sums + size * _shift(self._pooled())[:, None] * sums.sum(axis=0)
        return planted


class Wasserstein(Statistic):
    """Area between two distribution functions over `points` [C], the positions of the columns."""

    unit = "mean shift of the log gap, for a shift of location"

    def __init__(self, name: str, contributions: Any, points: Floats) -> None:
        super().__init__(name, contributions)
        self.widths = np.diff(points)

    def value(self, first: Floats, second: Floats) -> Floats:
        area: Floats = self.widths @ np.abs(_cdf(first) - _cdf(second))[:-1]
        return area

    def deviation(self, first: Floats, second: Floats) -> Floats:
        return self.value(first, second)

    def plant(self, sums: Floats, size: float) -> Floats:
        shift = _shift(self._pooled())
        planted: Floats = sums + size / (self.widths @ np.cumsum(shift)[:-1]) * shift[:, None] * sums.sum(axis=0)
        return planted


class ChiSquare(Statistic):
    """Pearson's chi-square of a table with two rows, the samples; given `groups` [C] of the columns, conditional on the group.

    The planted deviation moves probability from one half of each group's cells to the other.
    """

    unit = "total variation (share of events that change cell), half of the cells gaining what the other half lose"

    def __init__(self, name: str, cells: Integers, groups: Integers, path: Integers, paths: int) -> None:
        """cells [n]: each event's cell; groups [n]: what the comparison is conditional on; path [n] of `paths`."""
        column, column_group = _columns(cells, groups)
        super().__init__(name, sparse.coo_array((np.ones(len(path)), (path, column)), shape=(paths, len(column_group))))
        self.starts = np.flatnonzero(np.diff(column_group, prepend=-1))
        self.group = np.cumsum(np.diff(column_group, prepend=-1) > 0) - 1

    def value(self, first: Floats, second: Floats) -> Floats:
        first_total, second_total = self._totals(first), self._totals(second)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = (first * second_total - second * first_total) ** 2 / (first_total * second_total * (first + second))
        total: Floats = np.nansum(terms, axis=0)
        return total

    def deviation(self, first: Floats, second: Floats) -> Floats:
        """Total variation within groups, averaged over the events. Zero only in the limit: its noise is not subtracted."""
        first_total, second_total = self._totals(first), self._totals(second)
        share = (first_total + second_total) / (first + second).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = share * np.abs(first / first_total - second / second_total) / 2
        total: Floats = np.nansum(terms, axis=0)
        return total

    def plant(self, sums: Floats, size: float) -> Floats:
        pooled = self._pooled()[:, None]
        upper = (np.arange(len(pooled)) % 2 == 0)[:, None]
        gaining, losing = self._totals(pooled * upper), self._totals(pooled * ~upper)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.where(upper, pooled / gaining, -pooled / losing)
        whole = (gaining > 0) & (losing > 0)
        planted: Floats = sums + size * np.where(whole, moved, 0.0) * self._totals(sums)
        return planted

    def _totals(self, sums: Floats) -> Floats:
        totals: Floats = np.add.reduceat(sums, self.starts, axis=0)[self.group]
        return totals


class Autocorrelation(Statistic):
    """Largest difference of the autocovariances of counts [m, W], each in its standard errors; lag 0 is the variance."""

    unit = "difference of the autocorrelation of counts, at every lag alike"

    def __init__(self, name: str, counts: Floats, lags: int) -> None:
        residual = counts - counts.mean(axis=0)
        width = counts.shape[1]
        products = np.stack([(residual[:, : width - lag] * residual[:, lag:]).mean(axis=1) for lag in range(lags + 1)], axis=1)
        self.variance = max(float(products[:, 0].mean()), 1e-300)
        self.spread = np.maximum(products.std(axis=0), 1e-300)[:, None]
        super().__init__(name, np.column_stack([products, np.ones(len(counts))]))

    def value(self, first: Floats, second: Floats) -> Floats:
        largest: Floats = (np.abs(first[:-1] / first[-1] - second[:-1] / second[-1]) / self.spread).max(axis=0)
        return largest

    def deviation(self, first: Floats, second: Floats) -> Floats:
        largest: Floats = np.abs(first[:-1] / first[-1] - second[:-1] / second[-1]).max(axis=0) / self.variance
        return largest

    def plant(self, sums: Floats, size: float) -> Floats:
        planted = sums.copy()
        planted[:-1] += size * self.variance * sums[-1]
        return planted


def jensen_shannon(first: Floats, second: Floats) -> Floats:
    """Jensen-Shannon divergence [R] in bits (0 to 1) of counts [C, R], as plugged in: its bias for m cells and N events in
    each sample is about (m - 1) / (4 N ln 2) where events are independent."""
    p, q = first / first.sum(axis=0), second / second.sum(axis=0)
    divergence: Floats = (_entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2).clip(min=0.0)
    return divergence


def _entropy(p: Floats) -> Floats:
    entropy: Floats = -np.where(p > 0, p * np.log2(np.where(p > 0, p, 1.0)), 0.0).sum(axis=0)
    return entropy


def _cdf(sums: Floats) -> Floats:
    cumulative = np.cumsum(sums, axis=0)
    cdf: Floats = cumulative / np.maximum(cumulative[-1:], 1e-300)
    return cdf


def _shift(pooled: Floats) -> Floats:
    """Change of the column shares for a change 4 F (1 - F) of the distribution function: a shift, largest at the median."""
    cdf = np.cumsum(pooled) / pooled.sum()
    change = 4 * cdf * (1 - cdf)
    return np.diff(change / change.max(), prepend=0.0)


def _columns(cells: Integers, groups: Integers) -> tuple[Integers, Integers]:
    """Column of each event [n] and group of each column [C], group by group; a group's rare cells share one column.

    Groups are numbered from -1, cells from 0. Columns are ordered by size within their group, so that every other one of them
    holds about half of it.
    """
    width = int(cells.max()) + 2
    keys, index, counts = np.unique((groups + 1) * width + cells + 1, return_inverse=True, return_counts=True)
    kept = np.where(counts < RAREST_CELL, keys // width * width, keys)
    keys, merged = np.unique(kept, return_inverse=True)
    column, group = merged[index], keys // width - 1
    order = np.lexsort((-np.bincount(column), group))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[column], group[order]
