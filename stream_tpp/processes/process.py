"""What every process with a known intensity can do: the truth that samplers and models are held against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from stream_tpp.processes.sequence import EventSequence, Floats, Window


class Process(ABC):
    """A marked temporal point process given by one intensity per type, lambda_k(t | events strictly before t).

    "Strictly before" also holds among tied events: they don't excite each other, which keeps the likelihood of a log with
    ties bounded.
    """

    @property
    @abstractmethod
    def num_types(self) -> int:
        """K, the number of event types."""

    @abstractmethod
    def intensity(self, times: Floats, history: EventSequence) -> Floats:
        """Intensities [m, K], in events per unit of time, at `times` [m] given the events of `history` before each."""

    @abstractmethod
    def compensator(self, times: Floats, history: EventSequence) -> Floats:
        """Integrals [m, K] of the intensities from the start of the history's window to `times` [m]."""

    @abstractmethod
    def thin_rows(
        self, rng: np.random.Generator, window: Window, rows: int, history: EventSequence | None = None
    ) -> list[EventSequence]:
        """`rows` independent realisations on `window`, by thinning (Lewis and Shedler 1979; Ogata 1981).

        `history` holds the events before the window (all at or before `window.start`); none means a process that begins
        there. The sequences returned hold the new events only.
        """

    def thin(self, rng: np.random.Generator, window: Window, history: EventSequence | None = None) -> EventSequence:
        """One realisation on `window`; see `thin_rows`."""
        return self.thin_rows(rng, window, 1, history)[0]

    def log_likelihood(self, sequence: EventSequence, window: Window | None = None) -> float:
        """Log density of what happened on `window`, given the events of the sequence before it.

        sum over its events of log lambda_k(t) minus the integral of all intensities (Daley and Vere-Jones, prop. 7.2.III).
        `window` is the whole window of the sequence unless given, and must end by then.
        """
        window = window or sequence.window
        inside = (sequence.times <= window.end) & ((sequence.times > window.start) | (window.start <= sequence.window.start))
        times, types = sequence.times[inside], sequence.types[inside]
        at_event = self.intensity(times, sequence)[np.arange(len(times)), types]
        integral = np.diff(self.compensator(np.array([window.start, window.end]), sequence), axis=0).sum()
        with np.errstate(divide="ignore"):
            return float(np.log(at_event).sum() - integral)

    def residuals(self, sequences: Sequence[EventSequence], of_type: int | None = None) -> Floats:
        """Time-rescaling residuals, independent and Exp(1) exactly when the sequences come from this process.

        The compensator turns the events into a Poisson process of rate 1 (Brown et al. 2002, Neural Computation 14), stopped
        at the rescaled end of its window, a stopping time. So the rescaled windows may be laid end to end, each quiet tail
        running on into the next window's first gap: dropping the censored last gap of every window instead would leave too
        few long residuals. Only the very last tail is lost.

        All types together, or the events of one type against its own intensity; the latter, for each type in turn, also
        sees wrong types.
        """
        rescaled, offset = [], 0.0
        for sequence in sequences:
            at = np.append(sequence.times, sequence.window.end)
            integral = self.compensator(at, sequence)
            ground = integral.sum(axis=1) if of_type is None else integral[:, of_type]
            events = ground[:-1] if of_type is None else ground[:-1][sequence.types == of_type]
            rescaled.append(offset + events)
            offset += float(ground[-1])
        return np.diff(np.concatenate(rescaled), prepend=0.0) if rescaled else np.empty(0)
