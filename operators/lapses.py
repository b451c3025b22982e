"""When standing alerts lapse: a partition's, found in the table once and kept up from there on."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable


class Lapses:
    """The alerts of one partition, by their keys in the table, with the time (seconds) at which each that stands will lapse.

    `lapsed_at` names those that lapsed at a warning that will be read again, by the warning's offset: then they lapse again.
    """

    def __init__(self) -> None:
        self.lapsed_at: defaultdict[int, list[bytes]] = defaultdict(list)
        self._until: dict[bytes, float] = {}
        # Holds what is out of date, too: an alert that was put off, or does not stand any more.
        self._heap: list[tuple[float, bytes]] = []

    def put(self, key: bytes, until: float | None) -> None:
        """The alert lapses then; None for one that does not stand."""
        if until is None:
            self._until.pop(key, None)
        elif self._until.get(key) != until:
            self._until[key] = until
            heapq.heappush(self._heap, (until, key))

    def due(self, now: float) -> list[bytes]:
        """Those that lapse before `now`, in order; they stay until something else is put."""
        due: list[tuple[float, bytes]] = []
        while self._heap and self._heap[0][0] < now:
            until, key = heapq.heappop(self._heap)
            if self._until.get(key) == until:
                due.append((until, key))
        self._push(due)
        return [key for _, key in due]

    def _push(self, entries: Iterable[tuple[float, bytes]]) -> None:
        for entry in entries:
            heapq.heappush(self._heap, entry)
