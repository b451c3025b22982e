"""The inhomogeneous Poisson process with a sinusoidal rate: no memory, only the clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.processes.process import Process
from stream_tpp.processes.sequence import EventSequence, Floats, Window


@dataclass(frozen=True)
class SinusoidalPoisson(Process):
    """lambda(t) = level (1 + depth sin(2 pi t / period)), one type; 0 <= depth <= 1."""

    level: float
    period: float
    depth: float = 1.0

    def __post_init__(self) -> None:
        if not (self.level > 0 and self.period > 0 and 0 <= self.depth <= 1):
            raise StreamTppError(f"A sinusoidal rate needs level > 0, period > 0 and 0 <= depth <= 1: {self}.")

    @property
    def num_types(self) -> int:
        return 1

    def intensity(self, times: Floats, history: EventSequence) -> Floats:
        return self._rate(times)[:, None]

    def compensator(self, times: Floats, history: EventSequence) -> Floats:
        return (self._integral(times) - self._integral(np.array([history.window.start])))[:, None]

    def thin_rows(
        self, rng: np.random.Generator, window: Window, rows: int, history: EventSequence | None = None
    ) -> list[EventSequence]:
        bound = self.level * (1 + self.depth)
        sequences = []
        for proposals in rng.poisson(bound * window.length, size=rows):
            times = np.sort(rng.uniform(window.start, window.end, size=proposals))
            kept = times[rng.random(proposals) * bound < self._rate(times)]
            sequences.append(EventSequence(kept, np.zeros(len(kept), dtype=np.int64), window))
        return sequences

    def _rate(self, times: Floats) -> Floats:
        rate: Floats = self.level * (1 + self.depth * np.sin(2 * np.pi * times / self.period))
        return rate

    def _integral(self, times: Floats) -> Floats:
        cycle = self.period / (2 * np.pi)
        integral: Floats = self.level * (times - self.depth * cycle * np.cos(times / cycle))
        return integral
