"""The outbox: outputs leave as soon as they are known, or in transactions; records are acknowledged in order, after theirs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.post import Fate, Letter
from stream_tpp.operators.transactions import ShutOut

log = logging.getLogger(__name__)

# With so many in flight a round waits for more (seconds), since each costs a request to every node; those who come last in a
# line as long as that hardly wait longer for it.
_MANY, _GATHER = 256, 0.02

# Sends letters; the answer is what became of each, in their order.
Send = Callable[[Sequence[Letter]], Awaitable[Sequence[Fate]]]

# Sends letters and commits how far a partition is done with (the offset after the last), both or neither.
Commit = Callable[[TP, int, Sequence[Letter]], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Parcel:
    """A record in flight, by where it lies: what has to arrive before it is acknowledged.

    `writes` are table writes, for the changelog; `outputs` is None until the record's outputs are known. Both leave then,
    and it is `done` once all of them have arrived.
    """

    tp: TP
    offset: int
    ack: Callable[[], object]
    writes: Sequence[Letter] = ()
    outputs: Sequence[Letter] | None = None
    done: bool = field(default=False, init=False)
    dropped: bool = field(default=False, init=False)


class Undeliverable(Exception):
    """Outputs, or table writes, did not arrive, however often they were sent."""


class Outbox(ABC):
    """Records in flight, at most `limit`, in order of offset for each partition.

    `run` publishes. Nothing is acknowledged out of order, or before its outputs and its table writes have arrived, so a commit
    never runs ahead of either.
    """

    def __init__(self, *, limit: int, retries: int = 3, pause: float = 1.0) -> None:
        """What fails is sent again up to `retries` times, after a pause of `pause` seconds each."""
        self.limit = limit
        self.epoch = 0
        self._retries = retries
        self._pause = pause
        self._parcels: dict[TP, deque[Parcel]] = {}
        self._count = 0
        self._ready = asyncio.Event()
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    @property
    @abstractmethod
    def waits(self) -> float:
        """For how long (seconds) what was sent has not arrived; 0 where nothing is on its way."""

    @abstractmethod
    async def run(self) -> None:
        """Publish for ever. Raises Undeliverable."""

    async def room(self) -> None:
        """Wait until another record may be put: back-pressure on whoever reads the topic."""
        while self._count >= self.limit:
            self._freed.clear()
            await self._freed.wait()

    async def empty(self) -> None:
        """Wait until nothing is in flight."""
        while self._count:
            self._freed.clear()
            await self._freed.wait()

    def expects(self, tp: TP, offset: int) -> bool:
        """Whether the record is one to put: it may have been put already, since Faust seeks now and then while it reads."""
        return True

    def put(self, parcel: Parcel) -> None:
        """Take in a record, after all others of its partition."""
        self._parcels.setdefault(parcel.tp, deque()).append(parcel)
        self._count += 1
        if parcel.outputs is not None:
            self._tell(parcel)

    def resolve(self, parcel: Parcel, outputs: Sequence[Letter], stands_for: Sequence[Parcel] = ()) -> None:
        """The outputs of a parcel are known, and those that it stands for have none: they are done when it is."""
        if parcel.dropped:
            return
        parcel.outputs = outputs
        for other in stands_for:
            other.outputs = ()
        self._tell(parcel, *stands_for)

    def drop(self) -> int:
        """Forget all in flight, unacknowledged, and begin a new epoch; the number forgotten.

        For a rebalance: every partition is read again from its committed offset, so whoever still holds a record of
        the epoch before must not put it.
        """
        dropped = self._count
        for parcels in self._parcels.values():
            for parcel in parcels:
                parcel.dropped = True
                # The consumer waits for records that are referred to; these will never be acknowledged.
                parcel.ack = _nothing
        self._parcels.clear()
        self._count = 0
        self.epoch += 1
        self._freed.set()
        return dropped

    def _tell(self, *known: Parcel) -> None:
        """The outputs of these are known."""
        self._ready.set()

    def _acknowledge(self, arrived: Sequence[Parcel]) -> None:
        for parcel in arrived:
            parcel.done = True
            # It may be long until it can be acknowledged.
            parcel.outputs, parcel.writes = (), ()
        for parcels in self._parcels.values():
            while parcels and parcels[0].done:
                parcels.popleft().ack()
                self._count -= 1
        self._freed.set()


class EagerOutbox(Outbox):
    """Sends outputs in the order in which they become known, which for one entity has to be the order of its events:
    a forecast does not wait for those of other entities.
    """

    def __init__(self, send: Send, *, limit: int, retries: int = 3, pause: float = 1.0) -> None:
        super().__init__(limit=limit, retries=retries, pause=pause)
        self._send = send
        self._known: list[Parcel] = []
        self._sent_at: float | None = None

    @property
    def waits(self) -> float:
        return 0.0 if self._sent_at is None else time.monotonic() - self._sent_at

    def drop(self) -> int:
        self._known.clear()
        return super().drop()

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            if self._count >= _MANY:
                await asyncio.sleep(_GATHER)
            self._ready.clear()
            parcels, self._known = self._known, []
            self._sent_at = time.monotonic()
            await self._deliver(parcels)
            self._sent_at = None
            self._acknowledge(parcels)

    def _tell(self, *known: Parcel) -> None:
        self._known += known
        super()._tell()

    async def _deliver(self, parcels: Sequence[Parcel]) -> None:
        letters = _letters(parcels)
        for attempt in range(self._retries + 1):
            if attempt:
                log.warning("Sending %d records again (%d of %d)", len(letters), attempt, self._retries)
                await asyncio.sleep(self._pause)
            fates = await self._send(letters) if letters else ()
            failed = [(letter, fate) for letter, fate in zip(letters, fates, strict=True) if isinstance(fate, Exception)]
            if not failed:
                return
            letters = [letter for letter, _ in failed]
        last, error = failed[-1]
        raise Undeliverable(f"{len(failed)} records could not be delivered, the last to {last.topic!r} for {error!r}.") from error


class TransactionalOutbox(Outbox):
    """Sends outputs in order of offset: those known at the head of a partition are one transaction, their offset with them.

    A partition's transactions come one after another, and wait for no other partition's.
    """

    def __init__(self, commit: Commit, *, limit: int, retries: int = 3, pause: float = 1.0, notice: float = 10.0) -> None:
        """Who is shut out hears within `notice` seconds of the rebalance that did it, which drops all, or else it ends."""
        super().__init__(limit=limit, retries=retries, pause=pause)
        self._commit = commit
        self._notice = notice
        self._dropped = asyncio.Event()
        self._last: dict[TP, int] = {}
        self._since: dict[TP, float] = {}

    @property
    def waits(self) -> float:
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    def expects(self, tp: TP, offset: int) -> bool:
        return offset > self._last.get(tp, -1)

    def put(self, parcel: Parcel) -> None:
        self._last[parcel.tp] = parcel.offset
        super().put(parcel)

    def drop(self) -> int:
        self._last.clear()
        self._dropped.set()
        self._dropped = asyncio.Event()
        return super().drop()

    async def run(self) -> None:
        under_way: dict[TP, asyncio.Task[None]] = {}
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                for tp in [tp for tp, transaction in under_way.items() if transaction.done()]:
                    under_way.pop(tp).result()
                for tp, parcels in self._parcels.items():
                    head = list(takewhile(lambda parcel: parcel.outputs is not None, parcels))
                    if head and tp not in under_way:
                        under_way[tp] = asyncio.create_task(self._deliver(tp, head))
                        under_way[tp].add_done_callback(lambda _: self._ready.set())
        finally:
            for transaction in under_way.values():
                transaction.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)

    async def _deliver(self, tp: TP, parcels: Sequence[Parcel]) -> None:
        self._since[tp] = time.monotonic()
        try:
            if await self._committed(tp, parcels):
                self._acknowledge(parcels)
        finally:
            del self._since[tp]

    async def _committed(self, tp: TP, parcels: Sequence[Parcel]) -> bool:
        """Whether they are, or else they were dropped. Raises Undeliverable, and what ends a worker with a sentence."""
        letters, last = _letters(parcels), parcels[-1]
        failed: Exception | None = None
        for attempt in range(self._retries + 1):
            if attempt:
                log.warning("Sending %d records again (%d of %d)", len(letters), attempt, self._retries)
                await asyncio.sleep(self._pause)
            # All of a partition are dropped at once. The successor of a dropped one may be this very worker.
            if last.dropped:
                return False
            try:
                await self._commit(tp, last.offset + 1, letters)
                return True
            except Exception as error:
                if isinstance(error, ShutOut) and not last.dropped:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._dropped.wait(), self._notice)
                if last.dropped:
                    return False
                if isinstance(error, StreamTppError):
                    raise
                # Those after it may but follow from it: a batch that Kafka refused leaves a gap in the producer's count.
                failed = failed or error
        raise Undeliverable(f"{len(letters)} records could not be delivered in a transaction for {failed!r}.") from failed


def _letters(parcels: Sequence[Parcel]) -> list[Letter]:
    return [letter for parcel in parcels for letter in (*parcel.writes, *(parcel.outputs or ()))]


def _nothing() -> None:
    return None
