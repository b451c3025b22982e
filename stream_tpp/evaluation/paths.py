"""Simulated paths laid flat, the form in which they are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.processes import EventSequence
from stream_tpp.processes.sequence import Floats, Integers

if TYPE_CHECKING:
    from stream_tpp.sampling.futures import Futures


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """m independent simulated paths with n events in all, path after path.

    leads float64 [n]: seconds from the path's start, in order within a path; types int64 [n]; path int64 [n]: number of the
    path, nondecreasing; strata int64 [m]: which history each path goes on from. Paths of one stratum have one law.
    horizon: seconds that every path covers; None where paths end after a number of events instead.
    """

    leads: Floats
    types: Integers
    path: Integers
    strata: Integers
    horizon: float | None

    def __len__(self) -> int:
        """m, the number of paths."""
        return len(self.strata)

    @classmethod
    def of_futures(cls, futures: Futures, horizon: float | None) -> Paths:
        """The paths of the sampler's futures [B, P, N]; history b is stratum b."""
        histories, paths, _ = futures.types.shape
        present = (futures.types >= 0).numpy()
        path = np.broadcast_to(np.arange(histories * paths).reshape(histories, paths, 1), present.shape)[present]
        leads, types = futures.leads.numpy()[present], futures.types.numpy()[present]
        return cls(leads, types, path.astype(np.int64), np.repeat(np.arange(histories), paths), horizon)

    @classmethod
    def of_sequences(cls, sequences: Sequence[EventSequence]) -> Paths:
        """Whole sequences, all of one law; their windows must have one length."""
        lengths = {sequence.window.length for sequence in sequences}
        if len(lengths) != 1:
            raise StreamTppError(f"Sequences to compare need windows of one length: got {sorted(lengths)}.")
        path = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
        leads = np.concatenate([sequence.times - sequence.window.start for sequence in sequences])
        types = np.concatenate([sequence.types for sequence in sequences])
        return cls(leads, types, path, np.zeros(len(sequences), dtype=np.int64), lengths.pop())

    def followed_by(self, other: Paths) -> Paths:
        """The paths of both, these first."""
        return Paths(
            np.concatenate([self.leads, other.leads]),
            np.concatenate([self.types, other.types]),
            np.concatenate([self.path, other.path + len(self)]),
            np.concatenate([self.strata, other.strata]),
            self.horizon,
        )

    @property
    def starts(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Bool [n]: the event is its path's first."""
        return np.diff(self.path, prepend=-1) > 0

    @property
    def gaps(self) -> Floats:
        """[n]: seconds since the event before; of a path's first event, since its start."""
        return np.where(self.starts, self.leads, np.diff(self.leads, prepend=0.0))
