"""What the agents do with a stream that Faust gives them, whatever happens on the way."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from faust.exceptions import PartitionsMismatch
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.history import Slot
from stream_tpp.operators.agents import ChangelogTable, ForecastAgent
from stream_tpp.operators.alerts import Change, Kind, Mark, States, states_mark
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecasting import Forecasting
from stream_tpp.operators.histories import Histories, slot_mark
from stream_tpp.operators.ingest import Ingest
from stream_tpp.operators.outbox import Undeliverable
from stream_tpp.operators.post import Arrived, Fate, Letter

WITHIN = 10.0


class App:
    """As much of a Faust app as an agent touches. Offsets are committed up to the first that is not acknowledged."""

    def __init__(self) -> None:
        self.monitor = SimpleNamespace(tp_committed_offsets={})
        self.sensors = SimpleNamespace(on_message_out=lambda *_: None)
        self.on_partitions_revoked = self.on_before_shutdown = SimpleNamespace(connect=lambda handler: None)
        self.consumer = SimpleNamespace(unacked=set())
        self.acked: list[int] = []
        self.commits = 0
        self.crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def commit(self, topics: set[str]) -> bool:
        self.commits += 1
        if self.acked:
            self.monitor.tp_committed_offsets[TP("events", 0)] = self.acked[-1] + 1
        return True

    async def crash(self, error: BaseException) -> None:
        self.crashed.set_result(error)


class Table(dict):
    """A table whose writes go nowhere, in Faust's place."""

    changelog_topic_name = "app-histories-changelog"

    def take_writes(self) -> list[Letter]:
        return []

    def sent(self, arrived: Iterable[Arrived]) -> None:
        assert not list(arrived)


class Topic:
    internal = False

    def __init__(self, name: str) -> None:
        self.get_topic_name = lambda: name


class Post:
    """What was sent: topic, key and headers; to `broken` topics nothing can be."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, dict[str, bytes]]] = []
        self.broken: set[str] = set()

    async def send(self, letters: Sequence[Letter]) -> list[Fate]:
        self.sent += [(letter.topic, letter.key, dict(letter.headers)) for letter in letters]
        return [OSError("no broker") if letter.topic in self.broken else Arrived(TP(letter.topic, 0), 0) for letter in letters]


class Event(SimpleNamespace):
    """An event that may be referred to weakly."""


class Stream:
    """The events topic as Faust's stream without automatic acknowledgement."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.offset = 0

    def put(self, value: bytes) -> None:
        offset, self.offset = self.offset, self.offset + 1
        message = SimpleNamespace(
            topic="events",
            partition=0,
            offset=offset,
            tp=TP("events", 0),
            timestamp=0.0,
            key=b"k",
            value=value,
            headers=None,
        )

        def ack() -> bool:
            self.app.acked.append(offset)
            return True

        self.queue.put_nowait(Event(message=message, ack=ack))

    def noack(self) -> "Stream":
        return self

    async def events(self) -> AsyncIterator[Any]:
        while True:
            yield await self.queue.get()


class Worker:
    """A forecast agent, running."""

    def __init__(self, engine: Any, table: Table | None = None, window: int = 8, slack: int = 64, **options: Any) -> None:
        self.app = App()
        self.post = Post()
        self.sent = self.post.sent
        self.table = Table() if table is None else table
        channels = ("forecasts", "warnings", "alerts", "dead_letters")
        self.counters = Counters()
        histories = Histories(self.table, window=window, slack=slack, reorder=0)
        forecasting = Forecasting(Ingest(engine.types), histories, self.counters)
        topics = {name: Topic(name) for name in channels}
        self.agent = ForecastAgent(self.app, self.table, topics, self.post, forecasting, engine, **options)  # type: ignore[arg-type]
        self.stream = Stream(self.app)

    async def until_acked(self, *offsets: int) -> None:
        async with asyncio.timeout(WITHIN):
            while self.app.acked != list(offsets):
                await asyncio.sleep(0.002)

    def reasons(self) -> list[bytes]:
        return [headers["reason"] for name, _, headers in self.sent if name == "dead_letters" and headers]


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.agent.run(worker.stream))  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "only a cancellation ends the agent"


async def test_good_and_bad_events_are_answered_and_acknowledged_in_order(engine, event) -> None:
    worker = Worker(engine(guilty=frozenset({"g"})))
    async with running(worker):
        for value in (event("a", 1.0), b"{", event("g", 1.0), event("b", 1.0)):
            worker.stream.put(value)
        await worker.until_acked(0, 1, 2, 3)
    sent = Counter(name for name, *_ in worker.sent)
    assert sent == {"forecasts": 2, "warnings": 2, "dead_letters": 2}
    assert worker.reasons() == [b"not_json", b"sampler_failed"]


async def test_an_error_nobody_foresaw_costs_one_record_and_the_agent_lives(engine, event, monkeypatch) -> None:
    worker = Worker(engine())
    receive = worker.agent.forecasting.receive
    monkeypatch.setattr(
        worker.agent.forecasting, "receive", lambda record, committed: receive(record, committed) if record.value else 1 / 0
    )
    async with running(worker):
        for value in (event("a", 1.0), b"", event("a", 2.0)):
            worker.stream.put(value)
        await worker.until_acked(0, 1, 2)
    assert worker.reasons() == [b"processing_failed"]
    assert worker.counters.forecasts == 2


async def test_an_error_nobody_foresaw_stops_the_worker_where_it_is_told_to(engine, event, monkeypatch) -> None:
    worker = Worker(engine(), on_error="stop")
    monkeypatch.setattr(worker.agent.forecasting, "receive", lambda record, committed: 1 / 0)
    async with running(worker):
        worker.stream.put(event("a", 1.0))
        assert isinstance(await asyncio.wait_for(worker.app.crashed, WITHIN), ZeroDivisionError)
    assert worker.app.acked == []


async def test_a_changelog_with_other_partitions_stops_the_worker_with_a_sentence(engine, event) -> None:
    class Mismatched(Table):
        def __setitem__(self, key: bytes, value: bytes) -> None:
            raise PartitionsMismatch("8 here, 4 there")

    worker = Worker(engine(), Mismatched())
    async with running(worker):
        worker.stream.put(event("a", 1.0))
        error = await asyncio.wait_for(worker.app.crashed, WITHIN)
    assert isinstance(error, StreamTppError)
    assert "'events'" in str(error)
    assert "app-histories-changelog" in str(error)
    assert worker.app.acked == []


async def test_outputs_that_can_not_be_delivered_stop_the_worker(engine, event, monkeypatch) -> None:
    worker = Worker(engine())
    monkeypatch.setattr(worker.agent.outbox, "_retries", 0)
    worker.post.broken.add("forecasts")
    async with running(worker):
        worker.stream.put(event("a", 1.0))
        assert isinstance(await asyncio.wait_for(worker.app.crashed, WITHIN), Undeliverable)
    assert worker.app.acked == []


async def test_a_ring_that_is_full_of_uncommitted_events_has_them_committed_first(engine, event) -> None:
    worker = Worker(engine(), window=2, slack=2)
    async with running(worker):
        for time in range(12):
            worker.stream.put(event("a", float(time)))
        await worker.until_acked(*range(12))
    assert worker.app.commits > 0
    assert worker.counters.forecasts == 12


async def test_an_entity_that_waits_for_a_commit_stops_no_other_and_stays_in_order(engine, event) -> None:
    asked: list[tuple[str, float]] = []
    free = threading.Event()

    class Slow(engine):
        def forecast(self, requests):
            asked.extend((request.entity, request.now) for request in requests)
            free.wait(WITHIN)
            return super().forecast(requests)

    worker = Worker(Slow(), window=2, slack=2, conflate=False)
    async with running(worker):
        for time in range(6):
            worker.stream.put(event("hot", float(time)))
        for time in range(2):
            worker.stream.put(event("cold", float(time)))
        async with asyncio.timeout(WITHIN):
            while sum(b"cold" in key for key in worker.table) < 2:
                await asyncio.sleep(0.002)
        assert sum(b"hot" in key for key in worker.table) < 6
        assert worker.app.acked == []
        free.set()
        await worker.until_acked(*range(8))
    for entity, events in (("hot", 6), ("cold", 2)):
        assert [now for name, now in asked if name == entity] == [float(time) for time in range(events)]
    assert worker.counters.forecasts == 8


async def test_records_held_when_a_rebalance_begins_are_left_to_their_redelivery(engine, event) -> None:
    worker = Worker(engine(), window=1, slack=2)
    worker.agent.sampler.submit = lambda entity, token, request: None  # type: ignore[method-assign]
    async with running(worker):
        for time in range(5):
            worker.stream.put(event("a", float(time)))
        async with asyncio.timeout(WITHIN):
            while len(worker.agent.outbox) < 5:
                await asyncio.sleep(0.002)
        absorbed = len(worker.table)
        assert absorbed < 5
        assert worker.agent.drop() == 5
        worker.app.monitor.tp_committed_offsets[TP("events", 0)] = 5
        await asyncio.sleep(0.1)
    assert len(worker.table) == absorbed
    assert worker.app.acked == []


async def test_a_record_in_hand_when_a_rebalance_begins_is_left_to_its_redelivery(engine, event) -> None:
    worker = Worker(engine(), max_in_flight=1)
    worker.agent.sampler.submit = lambda entity, token, request: None  # type: ignore[method-assign]
    async with running(worker):
        worker.stream.put(event("a", 1.0))
        worker.stream.put(event("b", 1.0))
        async with asyncio.timeout(WITHIN):
            while worker.stream.queue.qsize() or len(worker.agent.outbox) < 1:
                await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)
        assert worker.agent.drop() == 1
        await asyncio.sleep(0.01)
        assert len(worker.agent.outbox) == 0
    assert len(worker.table) == 1, "the second event was absorbed though its partition was gone"
    assert worker.counters.dropped == 1
    assert worker.app.acked == []


async def test_a_worker_that_is_behind_answers_the_newest_of_an_entity_for_all_and_acknowledges_all(engine, event) -> None:
    free = threading.Event()

    class Slow(engine):
        def forecast(self, requests):
            free.wait(WITHIN)
            return super().forecast(requests)

    worker = Worker(Slow(), max_batch=1)
    async with running(worker):
        for number in range(8):
            worker.stream.put(event("ab"[number % 2], float(number)))
        async with asyncio.timeout(WITHIN):
            while len(worker.agent.outbox) < 8:
                await asyncio.sleep(0.002)
        free.set()
        await worker.until_acked(*range(8))
    assert worker.counters.processed == 8
    assert worker.counters.conflated == 8 - worker.counters.forecasts > 0
    named = [headers["stands_for"] for name, _, headers in worker.sent if name == "forecasts" and headers]
    assert sum(len(offsets.split(b",")) for offsets in named) == worker.counters.conflated


def test_what_a_worker_that_was_cut_off_writes_late_does_not_undo_its_successors_writes() -> None:
    class Held(ChangelogTable):
        data = {b"held": Slot(7, 1.0, 0, 0).pack()}  # noqa: RUF012

    table = Held.__new__(Held)
    table.mark = slot_mark

    def event(key: bytes, offset: int) -> SimpleNamespace:
        return SimpleNamespace(key=key, value=Slot(offset, 1.0, 0, 0).pack())

    early, again, late = event(b"held", 3), event(b"held", 7), event(b"held", 9)
    other, other_early = event(b"new", 5), event(b"new", 4)
    assert table._newest([early, again, late, early, other, other_early]) == [again, late, other]  # type: ignore[list-item]


def test_the_age_of_alert_states_is_how_far_their_writer_had_read() -> None:
    assert states_mark(States(Mark(0, 91, 8, 61.0, 0.6), (Change(90, 3, 1.0, 0.6, Kind.RAISED),), "a", "events").pack()) == 8
