"""An entity's past: `History`, what a model sees of it, and `Ring`, the rolling form of it that a stream keeps."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The events of one entity, oldest first.

    `times` float64 [n] seconds, nondecreasing; `types` int64 [n], indices into the model's vocabulary; `start` the time
    (seconds) from which on the entity was observed, None where that is unknown. `first` is the place of the first event in
    the entity's stream, None where that is unknown: where a model reads the latest events alone, it tells where to begin.
    """

    times: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    types: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    start: float | None = None
    first: int | None = None

    def __len__(self) -> int:
        return len(self.times)


class Slot(NamedTuple):
    """One absorbed event as a table stores it: 26 bytes, little endian.

    `offset` is the event's offset in its source partition, and orders the slots of an entity by arrival; `type` is an
    index into the vocabulary; `identity` the hash of the event's id, 0 for an event without one.
    """

    offset: int
    time: float
    type: int
    identity: int

    def pack(self) -> bytes:
        return LAYOUT.pack(*self)

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        return cls(*LAYOUT.unpack(raw))


LAYOUT = struct.Struct("<qdHQ")
_SLOTS = np.dtype([("offset", "<i8"), ("time", "<f8"), ("type", "<u2"), ("identity", "<u8")])
MOST_TYPES = 1 << 16

# Against the latest 320 events of its entity, a new one is taken for a repeat once in 225 million million.
IDENTITY_BYTES = 7


def identity_of(id: str | None) -> int:
    """The 56-bit hash by which repeats of an event are found; 0 for no id."""
    if id is None:
        return 0
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=IDENTITY_BYTES).digest()) or 1


class Ring:
    """An entity's latest events, in slots that are written over in turn.

    A worker that crashed reads again what it had not committed, and must then see each event's history as it was the
    first time. So the ring keeps `slack` slots more than it looks at, and `as_of` looks back to any offset, as long as all
    but the latest `slack` events were committed (`must_be_committed`).

    It looks at the latest `window` events that a model sees, and at `reorder` more: the latest by time are among the
    latest to arrive, as long as no event is overtaken by more than `reorder` others.
    """

    __slots__ = ("_next", "_slots", "reorder", "slack", "window")

    def __init__(self, window: int, slack: int, slots: Iterable[Slot] = (), reorder: int = 0) -> None:
        """`slots` as they lie in their places: what the table holds under slot numbers 0, 1, 2 ..."""
        if window < 1 or slack < 2 or reorder < 0:
            raise ValueError("a ring needs a window of at least 1 event, a slack of at least 2, and no negative reorder")
        self.window = window
        self.slack = slack
        self.reorder = reorder
        self._slots = np.array(list(slots), _SLOTS)
        full = len(self._slots) == self.size
        self._next = (int(self._slots["offset"].argmax()) + 1) % self.size if full else len(self._slots)

    @property
    def size(self) -> int:
        return self._looked_at + self.slack

    @property
    def _looked_at(self) -> int:
        return self.window + self.reorder

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def mark(self) -> int:
        """The highest offset absorbed, -1 for none."""
        return int(self._slots["offset"][self._next - 1]) if len(self._slots) else -1

    @property
    def must_be_committed(self) -> int:
        """The offset that has to be committed before another event is absorbed; -1 for none."""
        if len(self._slots) < self.size:
            return -1
        return int(self._slots["offset"][(self._next + self._looked_at) % self.size])

    def place(self) -> int:
        """The number of the slot that the next event goes to."""
        return self._next

    def absorb(self, slot: Slot) -> None:
        """Take in an event that arrived after all others (its offset is above `mark`), whatever its time."""
        if slot.offset <= self.mark:
            raise ValueError(f"offset {slot.offset} is not above the mark {self.mark}")
        if len(self._slots) < self.size:
            longer = np.empty(len(self._slots) + 1, _SLOTS)
            longer[:-1] = self._slots
            self._slots = longer
        self._slots[self._next] = slot
        self._next = (self._next + 1) % self.size

    def find(self, offset: int) -> tuple[int, Slot] | None:
        """The slot of the event at this offset, with its number; None when the ring has none."""
        if offset > self.mark:
            return None
        places = np.flatnonzero(self._slots["offset"] == offset)
        return (int(places[0]), Slot(*self._slots[places[0]].item())) if len(places) else None

    def holds_identity(self, identity: int, before: int) -> bool:
        """Whether one of the `window + reorder` events that came last before the offset `before` has this identity."""
        return identity != 0 and bool((self._latest(before - 1, self._looked_at)["identity"] == identity).any())

    def newest_time(self, before: int) -> float:
        """The greatest time among the `window + reorder` events that came last before the offset; -inf for none."""
        return float(self._latest(before - 1, self._looked_at)["time"].max(initial=-math.inf))

    def as_of(self, offset: int) -> History:
        """The history that the event at `offset` saw: it and what arrived before it, by time (ties by arrival).

        At most `window` events, the latest. Once older ones have slid out, the history starts at the last event before it,
        which is also how training crops longer sequences. Events are counted round the ring, so that `first` goes up by one as
        one slides out, and back to 0 now and then.
        """
        latest = self._latest(offset, self._looked_at + 1)
        arrived = self._next
        if offset < self.mark:
            arrived -= int((self._slots["offset"] > offset).sum())
        if (latest["time"][1:] < latest["time"][:-1]).any():
            latest = latest[np.argsort(latest["time"], kind="stable")]
        latest = latest[-self.window - 1 :]
        start = None
        if len(latest) > self.window:
            start, latest = float(latest[0]["time"]), latest[1:]
        first = (arrived - len(latest)) % self.size
        return History(latest["time"].astype(np.float64), latest["type"].astype(np.int64), start, first)

    def _latest(self, offset: int, count: int) -> NDArray[np.void]:
        """The last `count` slots, fewer than `size`, in order of arrival with offsets up to `offset`."""
        if offset < self.mark:
            arrived = self._slots[np.arange(self._next - len(self._slots), self._next)]
            end = int(np.searchsorted(arrived["offset"], offset, side="right"))
            return arrived[max(0, end - count) : end]
        begin = self._next - min(count, len(self._slots))
        # Below zero it begins at the end of the ring.
        return self._slots[begin : self._next] if begin >= 0 else self._slots[np.arange(begin, self._next)]
