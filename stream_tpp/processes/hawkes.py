"""The multivariate Hawkes process with an exponential kernel: events of one type excite events of all types."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_tpp.errors import StreamTppError
from stream_tpp.processes.process import Process
from stream_tpp.processes.sequence import EventSequence, Floats, Integers, Window

MOST_EVENTS = 1_000_000


class Hawkes(Process):
    """lambda_i(t) = mu_i + sum_j alpha_ij sum over events of type j before t of exp(-beta (t - t_event)).

    This is the jump parameterisation: an event of type j lifts the intensity of type i by alpha_ij at once and has
    alpha_ij / beta children of that type on average. (The other one in use writes alpha beta exp(-beta t); with the
    paper's alpha = 1, beta = 2 it would be critical, 1 child per event, where the paper's process has half a child.)

    mu [K] events per unit of time, alpha [K, K] (row: excited, column: exciting), beta > 0 per unit of time. Raises
    StreamTppError on shapes that disagree and on negative or non-finite parameters.
    """

    def __init__(self, mu: ArrayLike, alpha: ArrayLike, beta: float) -> None:
        self.mu: Floats = np.atleast_1d(np.asarray(mu, dtype=np.float64))
        self.alpha: Floats = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
        self.beta = float(beta)
        types = len(self.mu)
        if self.mu.ndim != 1 or self.alpha.shape != (types, types):
            raise StreamTppError(f"A Hawkes process needs mu [K] and alpha [K, K]: got {self.mu.shape}, {self.alpha.shape}.")
        parameters = np.concatenate([self.mu, self.alpha.ravel()])
        if not np.isfinite(parameters).all() or (parameters < 0).any() or not 0 < self.beta < np.inf:
            raise StreamTppError("A Hawkes process needs finite mu >= 0, alpha >= 0 and beta > 0.")

    def __repr__(self) -> str:
        return f"Hawkes(mu={self.mu.tolist()}, alpha={self.alpha.tolist()}, beta={self.beta})"

    @property
    def num_types(self) -> int:
        return len(self.mu)

    @cached_property
    def branching_ratio(self) -> float:
        """Spectral radius of alpha / beta; at 1 or more the process explodes on an endless window."""
        return float(np.abs(np.linalg.eigvals(self.alpha / self.beta)).max())

    @cached_property
    def mean_rates(self) -> Floats:
        """Stationary rates [K] = (I - alpha / beta)^-1 mu. Raises StreamTppError where there are none."""
        if self.branching_ratio >= 1:
            raise StreamTppError(f"{self} has no stationary rate: its branching ratio is {self.branching_ratio:.3g}.")
        return np.linalg.solve(np.eye(self.num_types) - self.alpha / self.beta, self.mu).astype(np.float64)

    def intensity(self, times: Floats, history: EventSequence) -> Floats:
        excitation, _ = self._excitation(times, history)
        rates: Floats = self.mu + excitation @ self.alpha.T
        return rates

    def compensator(self, times: Floats, history: EventSequence) -> Floats:
        excitation, counts = self._excitation(times, history)
        integral: Floats = (times[:, None] - history.window.start) * self.mu
        integral += (counts - excitation) @ self.alpha.T / self.beta
        return integral

    def thin_rows(
        self, rng: np.random.Generator, window: Window, rows: int, history: EventSequence | None = None
    ) -> list[EventSequence]:
        """See `Process.thin_rows`. All rows step together; between events the intensity only falls, so its value now bounds it.

        Raises StreamTppError when a row passes a million events (an explosive process).
        """
        now = np.full(rows, window.start)
        excitation = np.zeros((rows, self.num_types))
        if history is not None:
            # An event exactly at the window's start belongs to the history and excites what follows.
            just_after = np.array([np.nextafter(window.start, np.inf)])
            excitation += self._excitation(just_after, history)[0]
        running = np.arange(rows)
        found: list[tuple[Integers, Floats, Integers]] = []
        for _ in range(MOST_EVENTS):
            bound = (self.mu + excitation @ self.alpha.T).sum(axis=1)
            with np.errstate(divide="ignore"):
                wait = rng.exponential(size=len(running)) / bound
            now = now + wait
            inside = now <= window.end
            running, now, bound, wait, excitation = (a[inside] for a in (running, now, bound, wait, excitation))
            if not len(running):
                break
            excitation = excitation * np.exp(-self.beta * wait)[:, None]
            rates = np.cumsum(self.mu + excitation @ self.alpha.T, axis=1)
            # One uniform decides both whether there is an event and of which type: the slack above the last rate is "none".
            drawn = (rng.random(len(running)) * bound)[:, None] >= rates
            types = drawn.sum(axis=1)
            happened = np.flatnonzero(types < self.num_types)
            excitation[happened, types[happened]] += 1
            found.append((running[happened], now[happened], types[happened]))
        else:
            raise StreamTppError(f"{self} ran past a million events on {window}: it explodes; shorten the window.")
        return _sequences_by_row(found, rows, window)

    def _excitation(self, times: Floats, history: EventSequence) -> tuple[Floats, Floats]:
        """At each time [m]: sum of exp(-beta age) and number of the events before it, by type, each [m, K]."""
        if not len(history):
            return np.zeros((len(times), self.num_types)), np.zeros((len(times), self.num_types))
        happened = np.zeros((len(history), self.num_types))
        happened[np.arange(len(history)), history.types] = 1
        starts = np.zeros(len(history), dtype=bool)
        starts[0] = True
        after = decayed_sums(happened, history.times, starts, self.beta)
        last = np.searchsorted(history.times, times, side="left") - 1
        age = times - history.times[np.maximum(last, 0)]
        seen = (last >= 0)[:, None]
        excitation = np.where(seen, after[last] * np.exp(-self.beta * np.maximum(age, 0))[:, None], 0.0)
        return excitation, np.where(seen, np.cumsum(happened, axis=0)[last], 0.0)


def decayed_sums(values: Floats, times: Floats, starts: NDArray[np.bool_], beta: float) -> Floats:
    """x_n = values_n + exp(-beta (t_n - t_{n-1})) x_{n-1}, for values [n, K]; x begins afresh where `starts` [n] is true.

    The recursion that makes exponential Hawkes likelihoods linear in n (Ozaki 1979), as a scan by doubling: log2(n) passes
    over arrays instead of n steps of Python. All factors are at most 1, so nothing overflows.
    """
    sums = values.copy()
    with np.errstate(over="ignore"):
        decay = np.exp(-beta * np.diff(times, prepend=times[:1]))
    decay[starts] = 0.0
    step = 1
    while step < len(sums) and decay[step:].any():
        sums[step:] = sums[step:] + decay[step:, None] * sums[:-step]
        decay[step:] = decay[step:] * decay[:-step]
        step *= 2
    return sums


def _sequences_by_row(found: list[tuple[Integers, Floats, Integers]], rows: int, window: Window) -> list[EventSequence]:
    if not found:
        return [EventSequence.empty(window) for _ in range(rows)]
    row, times, types = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(row, kind="stable")
    cuts = np.searchsorted(row[order], np.arange(1, rows))
    by_row = zip(np.split(times[order], cuts), np.split(types[order], cuts), strict=True)
    return [EventSequence(t, k.astype(np.int64), window) for t, k in by_row]
