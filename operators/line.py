"""The line before the engine: who waited longest, who may be near an alert, and one request for many of an entity."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stream_tpp.forecast import Request

Token = TypeVar("Token")


@dataclass(slots=True, eq=False)
class Ask(Generic[Token]):
    """A request of an entity, and the earlier ones of the same entity that its answer stands for, oldest first."""

    entity: Hashable
    token: Token
    request: Request
    stands_for: list[Token] = field(default_factory=list)

    def give_way(self, token: Token, request: Request) -> None:
        """A newer request of the entity takes this place in the line; this one is conflated into it."""
        self.stands_for.append(self.token)
        self.token, self.request = token, request


class Line(Generic[Token]):
    """Requests that wait, oldest first; filled by one thread, emptied by another.

    While at least `max_batch` requests wait (the engine is behind) and `conflate` is set, a newer request of an entity
    takes the place of the one that waits. A quarter of every batch, and one place at least, is for those that waited
    longest; the rest is for the `urgent` first. So an urgent request waits for the batch under way and for
    ceil(urgent ones / (3/4 max_batch)) batches at most, and nobody waits for ever. Requests of one entity stay in order.
    """

    def __init__(
        self, max_batch: int, *, conflate: bool = False, urgent: Callable[[Hashable], bool] = lambda entity: False
    ) -> None:
        self.max_batch = max_batch
        self.conflate = conflate
        self.urgent = urgent
        self._asks: list[Ask[Token]] = []
        self._latest: dict[Hashable, Ask[Token]] = {}
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._asks)

    def put(self, entity: Hashable, token: Token, request: Request) -> None:
        with self._changed:
            waits = self._latest.get(entity)
            if waits is not None and self.conflate and len(self._asks) >= self.max_batch:
                waits.give_way(token, request)
            else:
                self._latest[entity] = ask = Ask(entity, token, request)
                self._asks.append(ask)
                # Who serves the line waits for a first, or for a whole batch; waking it for each costs more than the rest.
                if len(self._asks) in (1, self.max_batch):
                    self._changed.notify()

    def take(self, max_wait: float = 0.0) -> list[Ask[Token]]:
        """The next batch: as soon as it is full, or `max_wait` seconds after there is a first; empty at the line's end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._asks or self._closed)
                self._changed.wait_for(lambda: len(self._asks) >= self.max_batch or self._closed, max_wait)
                if self._asks or self._closed:
                    return self._leave()

    def clear(self) -> None:
        """Send all home."""
        with self._changed:
            self._asks.clear()
            self._latest.clear()

    def close(self) -> None:
        """Nobody comes any more: the line ends when those that wait are served."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _leave(self) -> list[Ask[Token]]:
        chosen = set(self._chosen())
        batch = [ask for ask in self._asks if ask in chosen]
        self._asks = [ask for ask in self._asks if ask not in chosen]
        for ask in batch:
            if self._latest[ask.entity] is ask:
                del self._latest[ask.entity]
        return batch

    def _chosen(self) -> list[Ask[Token]]:
        if len(self._asks) <= self.max_batch:
            return self._asks
        share = max(1, self.max_batch // 4)
        oldest, others = self._asks[:share], self._asks[share:]
        # Stable: the urgent first, and among equals those that waited longer.
        return (oldest + sorted(others, key=lambda ask: not self.urgent(ask.entity)))[: self.max_batch]
