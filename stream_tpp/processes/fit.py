"""Maximum likelihood for the Hawkes process: the baseline that every backtest shows beside a neural model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from stream_tpp.errors import StreamTppError
from stream_tpp.processes.hawkes import Hawkes, decayed_sums
from stream_tpp.processes.sequence import EventSequence, Floats, Integers

COARSE_BETAS = 9


def fit_hawkes(sequences: Sequence[EventSequence], num_types: int) -> Hawkes:
    """The Hawkes process of largest likelihood on independent sequences of types 0..num_types-1.

    For a given beta the likelihood is concave, and falls apart into one problem for each excited type (mu_i, alpha_i.);
    beta is searched over the profile, on a logarithmic grid between the longest window and the shortest gaps and then by
    Brent's method around the best. A type's mu is never less than half an event over all windows, so that a type that was
    not seen keeps a finite log likelihood. Raises StreamTppError on no events and on a type outside 0..num_types-1.
    """
    data = _Observed.of(sequences, num_types)
    lowest, highest = data.beta_range()
    grid = np.linspace(np.log(lowest), np.log(highest), COARSE_BETAS)
    profile = [_profile(float(log_beta), data)[0] for log_beta in grid]
    best = int(np.argmin(profile))
    around = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, COARSE_BETAS - 1)]))
    found = minimize_scalar(lambda b: _profile(float(b), data)[0], bounds=around, method="bounded", options={"xatol": 1e-3})
    _, mu, alpha = _profile(float(found.x), data)
    return Hawkes(mu, alpha, float(np.exp(found.x)))


@dataclass(frozen=True, slots=True)
class _Observed:
    """All sequences end to end: times, types, whether an event is its sequence's first, and its window's end."""

    times: Floats
    types: Integers
    first: NDArray[np.bool_]
    ends: Floats
    total_time: float
    num_types: int

    @classmethod
    def of(cls, sequences: Sequence[EventSequence], num_types: int) -> _Observed:
        filled = [s for s in sequences if len(s)]
        if not filled:
            raise StreamTppError("A Hawkes process can't be fitted to no events.")
        types = np.concatenate([s.types for s in filled])
        if types.max() >= num_types:
            raise StreamTppError(f"Event type {types.max()} is outside 0..{num_types - 1}.")
        lengths = [len(s) for s in filled]
        first = np.zeros(len(types), dtype=bool)
        first[np.cumsum([0, *lengths[:-1]])] = True
        ends = np.repeat([s.window.end for s in filled], lengths)
        total = float(sum(s.window.length for s in sequences))
        if total <= 0:
            raise StreamTppError("A Hawkes process can't be fitted to windows of no length.")
        return cls(np.concatenate([s.times for s in filled]), types, first, ends, total, num_types)

    def beta_range(self) -> tuple[float, float]:
        gaps = np.diff(self.times)[~self.first[1:]]
        gaps = gaps[gaps > 0]
        typical = self.total_time / len(self.times)
        shortest = min(float(np.quantile(gaps, 0.01)), typical) if len(gaps) else typical
        span = float(np.max(self.ends - self.times[np.maximum.accumulate(np.where(self.first, np.arange(len(self.first)), 0))]))
        return 1 / max(span, typical), 1 / shortest

    def excitation(self, beta: float) -> Floats:
        """[n, K]: sum of exp(-beta age) over the events strictly before each event, by type; ties don't see each other."""
        happened = np.zeros((len(self.times), self.num_types))
        happened[np.arange(len(self.times)), self.types] = 1
        after = decayed_sums(happened, self.times, self.first, beta)
        position = np.arange(len(self.times))
        new_time = self.first | (np.diff(self.times, prepend=-np.inf) > 0)
        group = np.maximum.accumulate(np.where(new_time, position, 0))
        before = np.maximum(group - 1, 0)
        decay = np.where(self.first[group], 0.0, np.exp(-beta * np.maximum(self.times - self.times[before], 0)))
        before_each: Floats = after[before] * decay[:, None]
        return before_each

    def exposure(self, beta: float) -> Floats:
        """[K]: integral of exp(-beta age) over the windows, summed over the events of each type."""
        lasting = -np.expm1(-beta * (self.ends - self.times)) / beta
        return np.bincount(self.types, weights=lasting, minlength=self.num_types).astype(np.float64)


def _profile(log_beta: float, data: _Observed) -> tuple[float, Floats, Floats]:
    """Smallest negative log likelihood at a beta, with its mu [K] and alpha [K, K]."""
    beta = float(np.exp(log_beta))
    excitation, exposure = data.excitation(beta), data.exposure(beta)
    integrals = np.append(data.total_time, exposure)
    total, mu, alpha = 0.0, np.empty(data.num_types), np.empty((data.num_types, data.num_types))
    for excited in range(data.num_types):
        features = excitation[data.types == excited]
        loss, weights = _concave_part(np.column_stack([np.ones(len(features)), features]), integrals)
        total, mu[excited], alpha[excited] = total + loss, weights[0], weights[1:]
    return total, mu, alpha


def _concave_part(features: Floats, integrals: Floats) -> tuple[float, Floats]:
    """Minimises weights . integrals - sum of log(features @ weights), weights >= 0; weights[0] >= half an event.

    Solved in expected events, weights * integrals, which are of one order of magnitude.
    """
    count = len(features)
    seen = integrals > 0
    scale = np.where(seen, integrals, 1.0)
    design = features[:, seen] / scale[seen]
    bounds = [(0.5, None)] + [(0.0, None)] * (int(seen.sum()) - 1)
    start = np.full(int(seen.sum()), max(count, 1) / (2 * max(int(seen.sum()) - 1, 1)))
    start[0] = max(count / 2, 0.5)

    def loss(events: Floats) -> tuple[float, Floats]:
        rates = design @ events
        return float(events.sum() - np.log(rates).sum()), 1 - (1 / rates) @ design

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500, "ftol": 1e-12})
    weights = np.zeros(len(integrals))
    weights[seen] = found.x / scale[seen]
    return float(found.fun), weights
