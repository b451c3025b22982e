"""What was read of histories, kept from one call to the next: an event that comes extends it by one place."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Prefix:
    """A history as a target read it, to be written to no more.

    events int64 [n, 3]: what was read, see `events_of`. keys and values float32 [1, L, D, S], S >= n; states float32 [2, D],
    those of the last two events; mixture [3 M] and types [K] float32, the raw law of the event to come.
    """

    events: NDArray[np.int64]
    keys: NDArray[np.float32]
    values: NDArray[np.float32]
    states: NDArray[np.float32]
    mixture: NDArray[np.float32]
    types: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.events)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, part.name).nbytes for part in fields(self))

    def shared(self, events: NDArray[np.int64]) -> int:
        """How many events both begin with."""
        n = min(len(self.events), len(events))
        differ = (self.events[:n] != events[:n]).any(1)
        return int(differ.argmax()) if differ.any() else n


class Prefixes:
    """The prefixes of the entities asked about last, one each, in at most `most_bytes` once `trim` was called.

    What is found is compared with the history event by event, bit for bit, so that it can save work and never change a
    result: an event that came late, a window that slid or two entities of one name cost a reading, no more. `hits` and `misses`
    count histories, `read` and `known` events that had to be read and that need not be, `evictions` prefixes let go.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self.hits = self.misses = self.read = self.known = self.evictions = 0
        self._held: OrderedDict[str, Prefix] = OrderedDict()
        self._weights: Any = None

    def __len__(self) -> int:
        return len(self._held)

    def by(self, weights: Any) -> Self:
        """These, without any that other weights (another object) read."""
        if self._weights is not weights:
            self._held.clear()
            self.nbytes, self._weights = 0, weights
        return self

    def find(self, entity: str) -> Prefix | None:
        """What was kept last for the entity."""
        return self._held.get(entity)

    def keep(self, entity: str, prefix: Prefix, known: int) -> None:
        """Keep the prefix, of which the first `known` events were found here, as the entity's newest."""
        self.hits, self.misses = self.hits + (known > 0), self.misses + (known == 0)
        self.known, self.read = self.known + known, self.read + len(prefix) - known
        older = self._held.pop(entity, None)
        self.nbytes += prefix.nbytes - (older.nbytes if older else 0)
        self._held[entity] = prefix

    def trim(self) -> None:
        """Let the least recently used go, until the bound holds."""
        while self.nbytes > self.most_bytes:
            _, prefix = self._held.popitem(last=False)
            self.nbytes -= prefix.nbytes
            self.evictions += 1


def events_of(y: NDArray[np.float64], kinds: NDArray[np.int64], times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bits of events [n]: int64 [n, 3]."""
    return np.stack((y.view(np.int64), kinds, times.view(np.int64)), 1)
