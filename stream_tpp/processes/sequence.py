"""A realisation of a temporal point process on a window of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_tpp.errors import StreamTppError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """The time interval (start, end] on which a process was observed; the units are the process's own."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not self.start <= self.end:
            raise StreamTppError(f"A window must not end ({self.end}) before it starts ({self.start}).")

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class EventSequence:
    """All events of one observed window: times float64 [n] (nondecreasing, inside the window) and types int64 [n].

    Nothing is known to have happened before `window.start`. Raises StreamTppError when the two arrays disagree, the times
    are not in order, leave the window or are not finite, or a type is negative.
    """

    times: Floats
    types: Integers
    window: Window

    def __post_init__(self) -> None:
        times, types = self.times, self.types
        if times.ndim != 1 or times.shape != types.shape:
            raise StreamTppError(f"A sequence needs one type per time; it has times {times.shape}, types {types.shape}.")
        if not len(times):
            return
        if not np.isfinite(times).all() or (np.diff(times) < 0).any():
            raise StreamTppError("The times of a sequence must be finite and in order.")
        if times[0] < self.window.start or times[-1] > self.window.end:
            raise StreamTppError(f"A sequence of events from {times[0]} to {times[-1]} leaves its window {self.window}.")
        if types.min() < 0:
            raise StreamTppError("Event types are numbered from 0.")

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def empty(cls, window: Window) -> EventSequence:
        return cls(np.empty(0), np.empty(0, dtype=np.int64), window)

    def first(self, count: int) -> EventSequence:
        """The sequence as it was seen at its `count`-th event, which ends the window."""
        if not 1 <= count <= len(self):
            raise StreamTppError(f"A sequence of {len(self)} events has no event number {count}.")
        end = float(self.times[count - 1])
        return EventSequence(self.times[:count], self.types[:count], Window(self.window.start, end))
