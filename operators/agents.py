"""The Faust binding: agents that read raw bytes and obey what Faust 0.15.3 does, not what it promises.

- One stream with `noack`, no `take`, concurrency 1: acknowledged in order, by the outbox, after delivery.
- No exception leaves the loop but cancellation, since Faust would acknowledge the record that raised it.
- Tables are written only where Faust knows the current event and its partition: in the agent's own iteration, or `_as_current`.
- A rebalance seeks every partition to its committed offset, so all that is in flight is forgotten then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import PartitionsMismatch
from faust.streams import _current_event
from faust.tables.table import Table
from faust.types import TP, EventT, StreamT, TopicT
from faust.types.tuples import Message
from mode.types.signals import BaseSignalT

from stream_tpp.errors import StreamTppError
from stream_tpp.forecast import Forecast
from stream_tpp.operators.alerts import Alerts
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.forecasting import Forecasting, Question
from stream_tpp.operators.histories import NotCommitted
from stream_tpp.operators.line import Ask
from stream_tpp.operators.outbox import EagerOutbox, Outbox, Parcel, TransactionalOutbox
from stream_tpp.operators.post import Arrived, Fate, Letter, Post
from stream_tpp.operators.records import Channel, Output, Record, Source
from stream_tpp.operators.sampler import Sampler
from stream_tpp.operators.transactions import Transactions

log = logging.getLogger(__name__)

# Seconds between looks at whether what is held can be handled.
TRY_AGAIN_EVERY = 0.01

OnError = Literal["dead_letter", "stop"]

Asked = tuple[Parcel, Question]
Answers = list[tuple[Ask[Asked], Forecast | Exception]]


class StoreFailed(StreamTppError):
    """The table's store on the local disk can't be read or written; no event is to blame."""


class ChangelogTable(Table[bytes, bytes]):
    """A table whose writes are sent to the changelog by who made them, see `take_writes`.

    Faust would send each at once, and commit the source's offset after a flush that gives up on a slow broker; who
    acknowledges a record only when its writes have arrived can't lose one.

    And no older value ever takes the place of a newer one, whatever their order in the changelog: a worker that was cut off
    and thrown out of its group still sends what it had written, long after its successor wrote more. `mark` gives a value's
    age: it grows with each write under a key.
    """

    def __init__(self, *args: Any, mark: Callable[[bytes], int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mark = mark
        self._to_send: list[Letter] = []
        self._failed: StoreFailed | None = None

    def __getitem__(self, key: bytes) -> bytes:
        with self._storing():
            return cast(bytes, super().__getitem__(key))

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._to_send.append(Letter(self.changelog_topic_name, key, value, partition=self.partition_for_key(key)))
        self._sensor_on_set(self, key, value)
        with self._storing():
            self.data[key] = value

    def items(self) -> Iterator[tuple[bytes, bytes]]:  # type: ignore[override]
        with self._storing():
            yield from super().items()

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]]) -> None:
        with self._storing():
            super().apply_changelog_batch(self._newest(batch))

    async def on_rebalance(self, *args: Any, **kwargs: Any) -> None:
        with self._storing():
            await super().on_rebalance(*args, **kwargs)

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, StoreFailed):
            raise
        except Exception as error:
            self._failed = StoreFailed(
                f"The store of the table {self.name!r} in {self.app.conf.datadir} fails ({error}): make room there, or mend the "
                "disk, and start the worker again; whatever the folder has lost comes back from the changelog."
            )
            # Faust would log what fails in a recovery, and try again for ever.
            self._end = asyncio.get_running_loop().create_task(self.app.crash(self._failed))
            raise self._failed from error

    def sent(self, arrived: Iterable[Arrived]) -> None:
        """Writes that were taken lie in the changelog."""
        # The store notes how much of the changelog it holds: not more than it does.
        if self._failed is None:
            with contextlib.suppress(StoreFailed), self._storing():
                for tp, offset in {each.tp: each.offset for each in arrived}.items():
                    self.data.set_persisted_offset(tp, offset)

    def _newest(self, batch: Iterable[EventT[Any]]) -> list[EventT[Any]]:
        newest: dict[bytes, int] = {}
        kept: list[EventT[Any]] = []
        for event in batch:
            key, value = cast(bytes, event.key), event.value
            if key not in newest:
                held = self.data.get(key)
                newest[key] = -1 if held is None else self.mark(held)
            mark = self.mark(value) if value else -1
            if mark >= newest[key]:
                newest[key] = mark
                kept.append(event)
        return kept

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        await super().on_recovery_completed(active_tps, standby_tps)
        mine = sorted(tp for tp in active_tps if tp.topic == self.changelog_topic_name)
        # A broker that goes just now ends nothing: this is but a word to whoever reads the log.
        with contextlib.suppress(KafkaError):
            for tp in await self._emptied(mine) if mine else ():
                log.warning(
                    "Partition %d of the changelog %r is empty, and once was not: what it held begins anew. Let Kafka compact "
                    "it (cleanup.policy=compact), and not delete from it.",
                    tp.partition,
                    tp.topic,
                )

    async def _emptied(self, tps: list[TP]) -> list[TP]:
        consumer = self.app.consumer
        begins, ends = await consumer.earliest_offsets(*tps), await consumer.highwaters(*tps)
        return [tp for tp in tps if begins[tp] == ends[tp] > 0]

    def take_writes(self) -> list[Letter]:
        """The writes since the last call, to be sent; tell which have arrived by `sent`."""
        writes, self._to_send = self._to_send, []
        return writes


class RawAgent(ABC):
    """An agent on one topic of raw bytes: each record is handled in order, its outputs go through an outbox.

    `on_error` decides about an exception that no operator foresaw: the record becomes a dead letter, or the worker stops.
    Outputs that can't be delivered always stop it; the events are read again when it comes back.

    A record that can't be handled before others are committed is held until they are, and those behind it go on; where
    `in_order` is set they wait too.

    With `transactions`, what is written for a record and that it was read become visible at once, or neither does.

    Where a rebalance or the worker's end begins, what is in flight has `patience` seconds to be done with; what is not is
    dropped, unacknowledged, and read again by whoever gets its partition.
    """

    in_order = True

    def __init__(
        self,
        app: faust.App,
        table: ChangelogTable,
        topics: Mapping[Channel, TopicT],
        post: Post,
        *,
        limit: int,
        on_error: OnError,
        patience: float,
        transactions: Transactions | None,
    ) -> None:
        self.app = app
        self.table = table
        self.topics = topics
        self.post = post
        self.on_error = on_error
        self.patience = patience
        self.outbox: Outbox = (
            TransactionalOutbox(partial(self._commit, transactions), limit=limit)
            if transactions
            else EagerOutbox(self._send, limit=limit)
        )
        self._names = {channel: topic.get_topic_name() for channel, topic in topics.items()}
        self._first: dict[TP, int] = {}
        # In order; and for each partition the least offset that one of them waits for.
        self._held: list[tuple[Parcel, EventT[Any]]] = []
        self._awaited: dict[TP, int] = {}
        self._holds, self._holds_none = asyncio.Event(), asyncio.Event()
        self._holds_none.set()
        app.on_partitions_revoked.connect(self._on_partitions_revoked)
        app.on_before_shutdown.connect(self._on_before_shutdown)

    @abstractmethod
    def handle(self, parcel: Parcel, record: Record, committed: int) -> list[Output] | None:
        """What to write for the record; None when the outbox will be told later.

        Raises NotCommitted; unless the agent is `in_order`, for later records too as long as their order matters.
        """

    @abstractmethod
    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        """The dead letter of a record, counted."""

    def drop(self) -> int:
        """Forget all in flight, since a rebalance begins: every partition is read again from its committed offset."""
        self.table.take_writes()
        # Faust would wait for their acknowledgement.
        unacked = self.app.consumer.unacked
        unacked.difference_update([message for message in unacked if message.tp in self._first])
        self._first.clear()
        self._held, self._awaited = [], {}
        self._tell_held()
        return self.outbox.drop()

    async def settle(self) -> None:
        """Let what is in flight be done with, for as long as patience lasts; drop the rest."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.outbox.empty(), self.patience)
        dropped = self.drop()
        if dropped:
            log.info("%d records were in flight for more than %g s: they will be read again", dropped, self.patience)

    async def run(self, stream: StreamT[Any]) -> None:
        """The agent's function."""
        async with self.publishing():
            async for event in cast(faust.Stream[Any], stream).noack().events():
                await self._take(event)

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """The outbox publishes while the agent runs, and what is held is tried again."""
        publisher = asyncio.create_task(self._publish(), name=f"stream-tpp {type(self).__name__} outbox")
        holder = asyncio.create_task(self._try_again(), name=f"stream-tpp {type(self).__name__} held")
        try:
            yield
        finally:
            publisher.cancel()
            holder.cancel()

    async def _take(self, event: EventT[Any]) -> None:
        epoch = self.outbox.epoch
        message = event.message
        self._first.setdefault(message.tp, message.offset)
        await self.outbox.room()
        if self.in_order:
            await self._holds_none.wait()
        # After a wait a rebalance may have passed; the record is then delivered again, to whoever has its partition.
        if self.outbox.epoch == epoch and self.outbox.expects(message.tp, message.offset):
            parcel = Parcel(message.tp, message.offset, partial(self._ack, event))
            self.outbox.put(parcel)
            await self._handle_held()
            await self._handle_or_hold(parcel, event)

    async def _handle_held(self) -> None:
        """Handle those held that may be by now, in order: who comes after them must not pass them."""
        if any(self._committed(tp) > least for tp, least in self._awaited.items()):
            held, self._held, self._awaited = self._held, [], {}
            for parcel, event in held:
                await self._handle_or_hold(parcel, event)

    async def _handle_or_hold(self, parcel: Parcel, event: EventT[Any]) -> None:
        tp = event.message.tp
        try:
            with _as_current(event):
                self._handle(parcel, record_of(event.message))
        except NotCommitted as missing:
            self._held.append((parcel, event))
            self._awaited[tp] = min(missing.offset, self._awaited.get(tp, missing.offset))
        except Exception as error:
            await self._stop(error, event.message)
        self._tell_held()

    def _tell_held(self) -> None:
        (self._holds if self._held else self._holds_none).set()
        (self._holds_none if self._held else self._holds).clear()

    def _handle(self, parcel: Parcel, record: Record) -> None:
        """Handle the record that lies in the outbox, in one go: nothing may come between."""
        try:
            outputs = self.handle(parcel, record, self._committed(TP(record.source.topic, record.source.partition)))
        except (NotCommitted, PartitionsMismatch, StoreFailed):
            raise
        except Exception as error:
            if self.on_error == "stop":
                raise
            log.exception("Could not process %s", record.source)
            outputs = self.refuse(record, "processing_failed", f"{type(error).__name__}: {error}")
        parcel.writes = self.table.take_writes()
        if outputs is not None:
            self.outbox.resolve(parcel, self._addressed(outputs))

    async def _try_again(self) -> None:
        try:
            while True:
                await self._holds.wait()
                await self.app.commit({tp.topic for tp in self._awaited})
                await self._handle_held()
                # What is still in flight has to be acknowledged first.
                await asyncio.sleep(TRY_AGAIN_EVERY)
        except Exception as error:
            await self.app.crash(error)

    def _committed(self, tp: TP) -> int:
        # Reading begins at the committed offset, so all before the first record is committed.
        return max(self._first[tp], self.app.monitor.tp_committed_offsets.get(tp, 0))

    def _ack(self, event: EventT[Any]) -> None:
        message = event.message
        if event.ack():
            self.app.sensors.on_message_out(message.tp, message.offset, message)

    async def _publish(self) -> None:
        try:
            for topic in self.topics.values():
                if topic.internal:
                    await topic.maybe_declare()
            await self.outbox.run()
        except Exception as error:
            await self.app.crash(error)

    def _addressed(self, outputs: Iterable[Output]) -> list[Letter]:
        return [
            Letter(self._names[output.channel], output.key, output.value, tuple(output.headers.items())) for output in outputs
        ]

    async def _send(self, letters: Sequence[Letter]) -> list[Fate]:
        fates = await self.post.send(letters)
        self._sent(fates)
        return fates

    async def _commit(self, transactions: Transactions, source: TP, offset: int, letters: Sequence[Letter]) -> None:
        self._sent(await transactions.commit(source, offset, letters))

    def _sent(self, fates: Iterable[Fate]) -> None:
        changelog = self.table.changelog_topic_name
        self.table.sent(fate for fate in fates if isinstance(fate, Arrived) and fate.tp.topic == changelog)

    async def _stop(self, error: Exception, message: Message) -> None:
        """End the worker on purpose; the record stays unacknowledged."""
        if isinstance(error, PartitionsMismatch):
            error = StreamTppError(
                f"The topic {message.topic!r} and the changelog {self.table.changelog_topic_name!r} have different numbers "
                f"of partitions: give `partitions` the number of {message.topic!r}, and delete the changelog."
            )
        await self.app.crash(error)
        # The worker cancels its agents when it stops.
        await asyncio.Event().wait()

    async def _on_partitions_revoked(self, app: Any, /, *revoked: Any, signal: BaseSignalT[Any], **more: Any) -> None:
        self.drop()

    async def _on_before_shutdown(self, app: Any, /, *more: Any, signal: BaseSignalT[Any], **named: Any) -> None:
        # The consumer stops after this, and commits what is acknowledged by then.
        await self.settle()


class ForecastAgent(RawAgent):
    """The agent on the events topic: what it asks of the engine, the sampler thread answers.

    An entity whose ring is full of events that are not committed stops no other: see Histories.absorb.
    """

    in_order = False

    def __init__(
        self,
        app: faust.App,
        table: ChangelogTable,
        topics: Mapping[Channel, TopicT],
        post: Post,
        forecasting: Forecasting,
        forecaster: Forecaster,
        *,
        max_batch: int = 16,
        max_wait: float = 0.0,
        max_in_flight: int = 2048,
        conflate: bool = True,
        on_error: OnError = "dead_letter",
        patience: float = 2.0,
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(
            app, table, topics, post, limit=max_in_flight, on_error=on_error, patience=patience, transactions=transactions
        )
        self.forecasting = forecasting
        self.counters: Counters = forecasting.counters
        self.sampler: Sampler[Asked] = Sampler(
            forecaster,
            self._hand_over,
            self.counters,
            max_batch=max_batch,
            max_wait=max_wait,
            conflate=conflate,
            urgent=forecasting.triage.urgent,
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self.sampler.start()
        try:
            async with super().publishing():
                yield
        finally:
            self.sampler.stop(within=0)

    def handle(self, parcel: Parcel, record: Record, committed: int) -> list[Output] | None:
        received = self.forecasting.receive(record, committed)
        self.counters.last_event_at = time.time()
        if isinstance(received, Question):
            self.sampler.submit(received.entity, (parcel, received), received.request)
            return None
        return received

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        return self.forecasting.refuse(record, reason, detail)

    def drop(self) -> int:
        dropped = super().drop()
        self.sampler.clear()
        self.counters.dropped += dropped
        self.forecasting.histories.forget()
        return dropped

    def _hand_over(self, forecaster: Forecaster, answers: Answers) -> None:
        # On the sampler thread.
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answered, forecaster, answers)

    def _answered(self, forecaster: Forecaster, answers: Answers) -> None:
        for ask, forecast in answers:
            parcel, question = ask.token
            if not parcel.dropped:
                outputs = self.forecasting.answer(question, forecast, forecaster, [earlier for _, earlier in ask.stands_for])
                self.outbox.resolve(parcel, self._addressed(outputs), [other for other, _ in ask.stands_for])


class AlertAgent(RawAgent):
    """The agent on the warnings topic."""

    def __init__(
        self,
        app: faust.App,
        table: ChangelogTable,
        topics: Mapping[Channel, TopicT],
        post: Post,
        alerts: Alerts,
        *,
        max_in_flight: int = 2048,
        on_error: OnError = "dead_letter",
        patience: float = 2.0,
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(
            app, table, topics, post, limit=max_in_flight, on_error=on_error, patience=patience, transactions=transactions
        )
        self.alerts = alerts

    def drop(self) -> int:
        self.alerts.forget()
        return super().drop()

    def handle(self, parcel: Parcel, record: Record, committed: int) -> list[Output]:
        return self.alerts.receive(record, committed)

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        return self.alerts.refuse(record, reason, detail)


def record_of(message: Message) -> Record:
    source = Source(message.topic, message.partition, message.offset)
    return Record(source, message.timestamp, message.key, message.value, dict(message.headers or {}))


@contextlib.contextmanager
def _as_current(event: EventT[Any]) -> Iterator[None]:
    token = _current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        _current_event.reset(token)
