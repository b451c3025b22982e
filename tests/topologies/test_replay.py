"""A log reaches its topic whole, in order, keyed by entity, at the pace asked for."""

import asyncio
import functools
import itertools
import json
import random
import socket
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields, decode_event
from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import BrokerUnreachable, Connection
from stream_tpp.topologies.replay import publish
from stream_tpp.topologies.topics import Topic, declare


@pytest.fixture
def connection() -> Iterator[Connection]:
    with EmbeddedBroker() as broker:
        yield Connection(broker.bootstrap_servers)


async def records(connection: Connection, topic: str, count: int) -> list[ConsumerRecord]:
    """The first `count` records of a topic, by partition and offset."""
    options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
    async with asyncio.timeout(20), AIOKafkaConsumer(topic, **connection.client_options(), **options) as consumer:
        read = [await consumer.getone() for _ in range(count)]
    return sorted(read, key=lambda record: (record.partition, record.offset))


async def test_every_event_arrives_once_and_each_entity_in_order_of_time(connection: Connection) -> None:
    events = [Event(f"entity {n % 40}", n / 3, "x", f"id-{n}" if n % 2 else None) for n in range(10_000)]
    shuffled = random.Random(1).sample(events, len(events))
    heard: list[int] = []
    published = await publish(shuffled, "events", connection, partitions=3, on_progress=heard.append)
    assert published.events == heard[-1] == 10_000
    assert heard == sorted(heard)
    read = await records(connection, "events", 10_000)
    arrived = [decode_event(record.value, Fields()) for record in read]
    assert sorted(arrived, key=lambda event: event.time) == events
    assert all(record.key == event.entity.encode() for record, event in zip(read, arrived, strict=True))
    assert {record.partition for record in read} == {0, 1, 2}
    for (one, event), (next_one, next_event) in itertools.pairwise(zip(read, arrived, strict=True)):
        assert one.partition < next_one.partition or event.time < next_event.time


async def test_records_are_stamped_with_the_wall_clock_and_carry_the_fields_of_an_event(connection: Connection) -> None:
    before = time.time()
    await publish([Event("é", 5.25, "x", "i"), Event("é", 6.0, "y")], "events", connection)
    after = time.time()
    first, second = await records(connection, "events", 2)
    assert before - 1 <= first.timestamp / 1000 <= after + 1
    assert json.loads(first.value) == {"entity": "é", "time": 5.25, "type": "x", "id": "i"}
    assert json.loads(second.value) == {"entity": "é", "time": 6.0, "type": "y"}


async def test_a_topic_that_exists_is_taken_as_it_is(connection: Connection) -> None:
    await declare(connection, [Topic("events", 2)])
    await publish([Event(str(n), 0.0, "x") for n in range(50)], "events", connection, partitions=5)
    assert {record.partition for record in await records(connection, "events", 50)} == {0, 1}


async def test_a_factor_keeps_the_distances_of_the_log(connection: Connection) -> None:
    events = [Event("a", 1e9, "x"), Event("a", 1e9 + 60, "x"), Event("a", 1e9 + 120, "x")]
    published = await publish(events, "events", connection, speed=200.0)
    stamps = [record.timestamp for record in await records(connection, "events", 3)]
    assert published.seconds >= 0.6
    assert all(next_one - one >= 290 for one, next_one in itertools.pairwise(stamps))


async def test_no_events_are_no_records(connection: Connection) -> None:
    assert (await publish([], "events", connection)).events == 0


async def test_without_a_broker_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_tpp.topologies.replay.declare", functools.partial(declare, within=0.2))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(BrokerUnreachable, match="No Kafka broker answers at"):
            await publish([Event("a", 0.0, "x")], "events", Connection(f"127.0.0.1:{unused.getsockname()[1]}"))


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
async def test_time_does_not_stand_still_or_go_back(speed: float) -> None:
    with pytest.raises(StreamTppError, match="it must be above 0"):
        await publish([], "events", Connection(), speed=speed)


@pytest.mark.slow
async def test_a_broker_that_goes_away_ends_the_replay_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_tpp.topologies.replay.DELIVERED_WITHIN", 2.0)
    broker = EmbeddedBroker().start()
    try:

        def gone(done: int) -> None:
            if done:
                broker.stop()

        events = [Event("a", float(n), "x") for n in range(20_000)]
        with pytest.raises(StreamTppError, match="did not take an event for 'events'"):
            await publish(events, "events", Connection(broker.bootstrap_servers), on_progress=gone)
    finally:
        broker.stop()
