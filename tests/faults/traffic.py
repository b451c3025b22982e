"""Traffic on the events topic while faults happen, and the verdict on what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_tpp.history import Slot
from stream_tpp.operators.records import entity_key
from stream_tpp.topologies.audit import Isolation, audit, follow
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.ledger import Audit, Ledger
from stream_tpp.topologies.settings import Settings

# Event time of the first event; far from the clock's, as in a log that is replayed.
EPOCH = 1_700_000_000.0


class Traffic:
    """Events of a few entities, at `rate` a second, in batches of a tick, for as long as the `with` block lasts."""

    def __init__(self, connection: Connection, topic: str, rate: float = 100.0, seed: int = 0) -> None:
        self.connection = connection
        self.topic = topic
        self.rate = rate
        self.sent = 0
        self._random = random.Random(seed)

    async def __aenter__(self) -> Traffic:
        self._producer = AIOKafkaProducer(
            **self.connection.client_options(), acks="all", enable_idempotence=True, request_timeout_ms=120_000
        )
        await self._producer.start()
        self._task: asyncio.Task[None] | None = None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pause()
        await self._producer.stop()

    def flow(self, entity: Callable[[random.Random], str] | None = None) -> None:
        """Begin to send."""
        self._task = asyncio.create_task(self._send(entity or (lambda random: f"entity-{random.randrange(24)}")))

    async def pause(self) -> None:
        """Stop sending; what was sent has arrived."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._producer.flush()

    async def burst(self, entities: Iterable[str]) -> None:
        """One event of each, at once."""
        for entity in entities:
            await self.send(self.event(entity), entity.encode())
        await self._producer.flush()

    async def send(self, value: bytes, key: bytes, partition: int | None = None) -> None:
        """One record, whatever is in it."""
        await self._producer.send(self.topic, value, key, partition)
        self.sent += 1

    def event(self, entity: str, **more: object) -> bytes:
        at = EPOCH + self.sent + self._random.random()
        return orjson.dumps({"entity": entity, "time": at, "type": self._random.choice(("ok", "ok", "bad")), **more})

    async def _send(self, entity: Callable[[random.Random], str]) -> None:
        began, before = time.monotonic(), self.sent
        while True:
            due = before + self.rate * (time.monotonic() - began)
            while self.sent < due:
                name = entity(self._random)
                await self.send(self.event(name), name.encode())
            await asyncio.sleep(0.02)


async def verdict(
    settings: Settings, sent: int, told: Callable[[], str], within: float = 90.0, isolation: Isolation = "read_uncommitted"
) -> Audit:
    """The auditor's account, as soon as nothing is owed for any of the events; as it is after `within` seconds.

    Asserts that nothing is lost and nothing contradictory, and that the histories' changelog folds to what the events do.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            await _settled(settings, sent, isolation)
    account = await audit(settings.kafka, settings.topics, settings.rules, settings.fields, isolation=isolation)
    assert account.events_in == sent, f"{account.events_in} events lie in the topic, {sent} were sent"
    if account.lost or account.contradictory:
        offsets = await committed(settings)
        faults = [fault for fault in account.faults if not fault.startswith("duplicated")]
        whole = f"{account.lost} lost, {account.contradictory} contradictory of {sent}; committed: {dict(offsets)}"
        raise AssertionError("\n".join([whole, *faults, told()]))
    assert account.events_in == account.processed + account.dead_lettered
    await _fold(settings)
    return account


async def _settled(settings: Settings, sent: int, isolation: Isolation) -> None:
    ledger = Ledger(settings.topics.events, settings.rules, settings.fields)
    async for entries in follow(settings.kafka, settings.topics, isolation):
        for entry in entries:
            ledger.take(entry)
        if not entries and ledger.settled(sent):
            return


async def _fold(settings: Settings) -> None:
    """The slots in the changelog are those of the latest events of each entity, no more and no less.

    Folded as workers do it: a worker that was cut off may write an older slot after a newer one, and the newer one stands.
    """
    changelog = await _changelog(settings.kafka, f"{settings.worker.application}-histories-")
    held: defaultdict[bytes, dict[int, Slot]] = defaultdict(dict)
    async for record in records(settings.kafka, changelog):
        slot = Slot.unpack(record.value)
        ring, place = held[record.key[:-2]], int.from_bytes(record.key[-2:])
        ring[place] = max(ring.get(place, slot), slot)
    dead = {
        (int(headers[b"partition"]), int(headers[b"offset"]))
        async for record in records(settings.kafka, settings.topics.dead_letters)
        if (headers := {name.encode(): value for name, value in record.headers})[b"reason"] != b"sampler_failed"
    }
    expected: defaultdict[bytes, list[tuple[int, float]]] = defaultdict(list)
    async for record in records(settings.kafka, settings.topics.events):
        if (record.partition, record.offset) not in dead:
            event = orjson.loads(record.value)
            expected[entity_key(record.partition, event["entity"])].append((record.offset, float(event["time"])))
    assert held.keys() == expected.keys()
    for key, slots in held.items():
        found = sorted((slot.offset, slot.time) for slot in slots.values())
        assert found == expected[key][-len(found) :], f"the changelog of {key!r} is not the fold of its events"
        assert len(found) >= min(len(expected[key]), settings.histories.window)


async def _changelog(connection: Connection, begins: str) -> str:
    async with AIOKafkaConsumer(**connection.client_options()) as consumer:
        (name,) = [name for name in await consumer.topics() if name.startswith(begins)]
        return str(name)


@dataclass(frozen=True)
class Stored:
    """A record as it lies in a topic."""

    partition: int
    offset: int
    timestamp: float
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


async def records(connection: Connection, topic: str) -> AsyncIterator[Stored]:
    """All records of a topic, partition by partition, up to its end as of now."""
    consumer = AIOKafkaConsumer(
        **connection.client_options(), auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=50
    )
    async with consumer:
        known = await consumer._client.fetch_all_metadata()
        places = [TopicPartition(topic, number) for number in known.partitions_for_topic(topic)]
        for place in places:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                for record in (await consumer.getmany(place, timeout_ms=200)).get(place, ()):
                    stamp = record.timestamp / 1000
                    yield Stored(record.partition, record.offset, stamp, record.key, record.value, record.headers)


async def committed(settings: Settings) -> Counter[int]:
    """The committed offset of each partition of the events topic."""
    consumer = AIOKafkaConsumer(**settings.kafka.client_options(), group_id=settings.worker.application, enable_auto_commit=False)
    async with consumer:
        places = [TopicPartition(settings.topics.events, number) for number in range(settings.topics.partitions)]
        return Counter({place.partition: await consumer.committed(place) or 0 for place in places})


async def first_forecast_after(settings: Settings, moment: float) -> float:
    """When (Unix seconds) the first forecast after the moment was written, as Kafka stamped it."""
    stamps = [record.timestamp async for record in records(settings.kafka, settings.topics.forecasts)]
    return min(stamp for stamp in stamps if stamp > moment)
