"""A Faust worker asks for the fetch wait that it was given, and loses nothing around a rebalance."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import faust
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer.fetcher import OffsetResetStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from stream_tpp.topologies.broker import FETCH_WAIT, EmbeddedBroker
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.topics import Topic, declare
from stream_tpp.topologies.transport import Consumer, known_position, set_fetch_wait
from tests.brokers.ladder import Broker

WITHIN = 30.0


class Reader:
    """An app whose agent reads the topic of events on a broker, into `seen`."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, **settings: object) -> None:
        connection = Connection(broker.bootstrap_servers)
        self.app = faust.App(
            "wards",
            autodiscover=False,
            datadir=str(folder),
            web_enabled=False,
            topic_disable_leader=True,
            broker_session_timeout=2,
            broker_rebalance_timeout=2,
            broker_heartbeat_interval=0.5,
            **settings,
            **connection.faust_options(),
        )
        self.seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def start(self) -> None:
        self.events = self.app.topic("events", key_type=bytes, value_type=bytes, value_serializer="raw")
        self.app.agent(self.events)(self.read)
        await self.app.start()

    async def read(self, stream: faust.StreamT[bytes]) -> None:
        async for value in stream:
            await self.seen.put(value)

    async def sees(self, value: bytes) -> bool:
        await self.events.send(value=value)
        return await asyncio.wait_for(self.seen.get(), 30) == value


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        await declare(Connection(running.bootstrap_servers), [Topic("events", 1)])
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("fetch_wait", [0.02, 0.75])
async def test_the_worker_fetches_with_the_wait_it_was_given(embedded: EmbeddedBroker, fetch_wait: float, tmp_path: Path) -> None:
    reader = Reader(embedded, tmp_path)
    set_fetch_wait(reader.app, fetch_wait)
    await reader.start()
    try:
        assert await reader.sees(b"an event")
        asked = reader.app.consumer._thread._consumer._fetcher._fetch_max_wait_ms
    finally:
        await reader.app.stop()
    assert asked == fetch_wait * 1000


@pytest.mark.slow
async def test_a_worker_ends_although_its_consumer_s_thread_answers_nobody(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    reader = Reader(embedded, tmp_path, broker_commit_interval=3600.0, stream_wait_empty=False)
    set_fetch_wait(reader.app, FETCH_WAIT)
    await reader.start()
    # There is something to commit, and nobody left to commit it.
    assert await reader.sees(b"an event")
    thread = reader.app.consumer._thread
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(thread.method_queue.stop(), thread.thread_loop))
    async with asyncio.timeout(WITHIN):
        await reader.app.stop()


@pytest.mark.slow
async def test_a_position_that_only_the_broker_knows_is_not_waited_for(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    reader, waiting = Reader(embedded, tmp_path, stream_wait_empty=False), list[asyncio.Task[int | None]]()
    set_fetch_wait(reader.app, FETCH_WAIT)
    await reader.start()
    try:
        assert await reader.sees(b"an event")
        thread = reader.app.consumer._thread
        assert await known_position(reader.app, EVENTS) == 1
        embedded.stop()
        thread._consumer._subscription.subscription.assignment.state_value(EVENTS).await_reset(OffsetResetStrategy.EARLIEST)
        # As many as the thread does at once.
        waiting = [asyncio.create_task(reader.app.consumer.position(EVENTS)) for _ in range(2)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await reader.app.consumer._thread.earliest_offsets(EVENTS)
        assert not any(task.done() for task in waiting)
        assert await asyncio.wait_for(known_position(reader.app, EVENTS), WITHIN) is None
        assert await asyncio.wait_for(known_position(reader.app, TP("events", 9)), WITHIN) is None
    finally:
        for task in waiting:
            task.cancel()
        async with asyncio.timeout(WITHIN):
            await reader.app.stop()


EVENTS, CHANGELOG = TP("events", 0), TP("changelog", 0)


class Message(SimpleNamespace):
    """A message of the events topic; `tracked` once an agent has it."""

    __hash__ = object.__hash__


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """A consumer of the events and of a changelog, in generation 1 and just assigned; it reads no broker."""
    made = Consumer.__new__(Consumer)
    flow = SimpleNamespace(is_active=lambda: True)
    tables = SimpleNamespace(changelog_topics={"changelog"})
    made.app = SimpleNamespace(flow_control=flow, consumer_generation_id=1, tables=tables)  # type: ignore[assignment]
    made.acked = []
    made._unsought, made._assignments = {EVENTS}, 1

    async def read(self: Consumer, active: set[TP], timeout: float) -> dict[TP, list[str]]:
        return {tp: ["a record"] for tp in active}

    async def seek(self: Consumer) -> None:
        return None

    monkeypatch.setattr(driver.Consumer, "_getmany", read)
    monkeypatch.setattr(driver.Consumer, "perform_seek", seek)
    monkeypatch.setattr(driver.Consumer, "ack", lambda self, message: self.acked.append(message) or True)
    return made


async def test_a_source_is_not_read_before_it_was_sought(consumer: Consumer) -> None:
    assert set(await consumer._getmany({EVENTS, CHANGELOG}, 1.0)) == {CHANGELOG}
    assert await consumer._getmany({EVENTS}, 1.0) == {}
    await consumer.perform_seek()
    assert set(await consumer._getmany({EVENTS, CHANGELOG}, 1.0)) == {EVENTS, CHANGELOG}


async def test_what_was_asked_for_before_a_rebalance_is_let_go(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    await consumer.perform_seek()

    async def read_while_rebalancing(self: Consumer, active: set[TP], timeout: float) -> dict[TP, list[str]]:
        self._assignments += 1
        return {tp: ["a record"] for tp in active}

    monkeypatch.setattr(driver.Consumer, "_getmany", read_while_rebalancing)
    assert set(await consumer._getmany({EVENTS, CHANGELOG}, 1.0)) == {CHANGELOG}


def test_a_record_that_no_agent_had_is_not_acknowledged_when_the_flow_stops(consumer: Consumer) -> None:
    had = Message(tracked=True, generation_id=1)
    passed_over = Message(tracked=False, generation_id=1)
    assert consumer.ack(had)
    consumer.app.flow_control.is_active = lambda: False
    assert consumer.ack(had)
    assert not consumer.ack(passed_over)
    consumer.app.flow_control.is_active = lambda: True
    assert not consumer.ack(Message(tracked=False, generation_id=0))
    assert consumer.acked == [had, had]


@pytest.mark.slow
async def test_a_partition_with_many_records_does_not_hold_up_the_others(kafka: Broker, name: str, tmp_path: Path) -> None:
    few, many, told = f"{name}-few", f"{name}-many", 3000
    await declare(kafka.connection, [Topic(few, 1), Topic(many, 1)])
    # With a short line before the agent, Faust pauses the partition until the warning is there.
    options = dict(kafka.connection.faust_options(), stream_buffer_maxsize=16)
    app = faust.App(name, autodiscover=False, datadir=str(tmp_path), web_enabled=False, **options)
    set_fetch_wait(app, kafka.fetch_wait)
    read: list[str] = []
    async with AIOKafkaProducer(**kafka.connection.client_options(), linger_ms=20) as producer:
        for _ in range(told):
            await producer.send(many, b"an event")
        await producer.flush()

        async def agent(stream: faust.StreamT[bytes]) -> None:
            async for event in stream.events():
                read.append(event.message.topic)
                if len(read) == 1:
                    await producer.send_and_wait(few, b"a warning")

        app.agent(app.topic(few, many, value_type=bytes, value_serializer="raw"))(agent)
        await app.start()
        async with asyncio.timeout(WITHIN):
            while len(read) <= told:
                await asyncio.sleep(0.01)
        await app.stop()
    assert few in read[:told], "the warning was read last"


@pytest.fixture
async def waiting(tmp_path: Path) -> Consumer:
    """A consumer as an app has it, not started."""
    app = faust.App("wards", autodiscover=False, datadir=str(tmp_path), web_enabled=False)
    set_fetch_wait(app, FETCH_WAIT)
    return cast(Consumer, app.consumer)


async def test_a_record_is_handed_on_and_what_fails_then_is_heard(waiting: Consumer) -> None:
    async def hand_on() -> str:
        await asyncio.sleep(0)
        return "handed on"

    async def fail() -> None:
        raise ValueError("no room")

    suspended = asyncio.Event()
    assert (await waiting.wait_first(hand_on(), suspended.wait())).results == ["handed on"]
    assert (await waiting.wait_first(suspended.wait(), hand_on())).results == ["handed on"]
    with pytest.raises(ValueError, match="no room"):
        await waiting.wait_first(fail(), suspended.wait())


@pytest.mark.parametrize("end", ["suspension", "cancellation", "cancellation at once"])
async def test_a_record_that_nobody_takes_is_let_go(waiting: Consumer, end: str) -> None:
    suspended, let_go = asyncio.Event(), asyncio.Event()

    async def hand_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()

    handing_on = asyncio.create_task(waiting.wait_first(hand_on(), suspended.wait()))
    await asyncio.sleep(0 if end == "cancellation at once" else 0.05)
    assert not handing_on.done()
    if end == "suspension":
        suspended.set()
        await asyncio.wait_for(handing_on, WITHIN)
    else:
        handing_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handing_on
    await asyncio.wait_for(let_go.wait(), WITHIN)
