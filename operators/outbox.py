"""The outbox: outputs leave as soon as they are known, and records are acknowledged in order, once theirs arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from stream_tpp.operators.post import Fate, Letter

log = logging.getLogger(__name__)

# With so many in flight a round waits for more (seconds), since each costs a request to every node; those who come last in a
# line as long as that hardly wait longer for it.
_MANY, _GATHER = 256, 0.02

# Sends letters; the answer is what became of each, in their order.
Send = Callable[[Sequence[Letter]], Awaitable[Sequence[Fate]]]


@dataclass(slots=True, eq=False)
class Parcel:
    """A record in flight: what has to arrive before it is acknowledged.

    `writes` are table writes, for the changelog; `outputs` is None until the record's outputs are known. Both leave then,
    and it is `done` once all of them have arrived.
    """

    partition: int
    ack: Callable[[], object]
    writes: Sequence[Letter] = ()
    outputs: Sequence[Letter] | None = None
    done: bool = field(default=False, init=False)
    dropped: bool = field(default=False, init=False)


class Undeliverable(Exception):
    """Outputs, or table writes, did not arrive, however often they were sent."""


class Outbox:
    """Records in flight, at most `limit`, in order of offset for each partition.

    `run` sends outputs in the order in which they become known, which for one entity has to be the order of its events:
    a forecast does not wait for those of other entities. Nothing is acknowledged out of order, or before its outputs and
    its table writes have arrived, so a commit never runs ahead of either.
    """

    def __init__(self, send: Send, *, limit: int, retries: int = 3, pause: float = 1.0) -> None:
        """What fails is sent again up to `retries` times, after a pause of `pause` seconds each."""
        self.limit = limit
        self.epoch = 0
        self._send = send
        self._retries = retries
        self._pause = pause
        self._parcels: dict[int, deque[Parcel]] = {}
        self._known: list[Parcel] = []
        self._count = 0
        self._ready = asyncio.Event()
        self._freed = asyncio.Event()
        self._sent_at: float | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def waits(self) -> float:
        """For how long (seconds) what was sent has not arrived; 0 where nothing is on its way."""
        return 0.0 if self._sent_at is None else time.monotonic() - self._sent_at

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

    def put(self, parcel: Parcel) -> None:
        """Take in a record, after all others of its partition."""
        self._parcels.setdefault(parcel.partition, deque()).append(parcel)
        self._count += 1
        if parcel.outputs is not None:
            self._known.append(parcel)
            self._ready.set()

    def resolve(self, parcel: Parcel, outputs: Sequence[Letter], stands_for: Sequence[Parcel] = ()) -> None:
        """The outputs of a parcel are known, and those that it stands for have none: they are done when it is."""
        if parcel.dropped:
            return
        parcel.outputs = outputs
        for other in stands_for:
            other.outputs = ()
        self._known += [parcel, *stands_for]
        self._ready.set()

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
        self._known.clear()
        self._count = 0
        self.epoch += 1
        self._freed.set()
        return dropped

    async def run(self) -> None:
        """Publish for ever. Raises Undeliverable."""
        while True:
            await self._ready.wait()
            if self._count >= _MANY:
                await asyncio.sleep(_GATHER)
            self._ready.clear()
            parcels, self._known = self._known, []
            self._sent_at = time.monotonic()
            await self._deliver(parcels)
            self._sent_at = None
            for parcel in parcels:
                parcel.done = True
                # It may be long until it can be acknowledged.
                parcel.outputs, parcel.writes = (), ()
            self._acknowledge()

    def _acknowledge(self) -> None:
        for parcels in self._parcels.values():
            while parcels and parcels[0].done:
                parcels.popleft().ack()
                self._count -= 1
        self._freed.set()

    async def _deliver(self, parcels: Sequence[Parcel]) -> None:
        letters = [letter for parcel in parcels for letter in (*parcel.writes, *(parcel.outputs or ()))]
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


def _nothing() -> None:
    return None
