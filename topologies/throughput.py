"""How many events a second pass through the topology, beside a bare Faust agent that forwards them; and how long one takes.

Every worker is a process of its own, and every figure is taken from the topics: from when records were stamped, and from the
auditor's account of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import multiprocessing
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import faust
import numpy as np
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_tpp.errors import StreamTppError
from stream_tpp.forecast import Forecast, Request
from stream_tpp.history import History
from stream_tpp.model.checkpoint import load
from stream_tpp.operators.slots import PackedSlots
from stream_tpp.topologies import early_warning
from stream_tpp.topologies.audit import audit, follow
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.ledger import Ledger, Place
from stream_tpp.topologies.plug import folder_of
from stream_tpp.topologies.run import run
from stream_tpp.topologies.settings import Forecasts, Histories, Settings, Topics, Worker
from stream_tpp.topologies.topics import Topic, changelogs, declare
from stream_tpp.warning.rule import Rule
from stream_tpp.warning.score import Score

PARTITIONS = 4
# Events before the first one measured: enough for each partition to be written to and read.
WARM_UP = 32
# Events that are put to the sampler alone, with 1 to so many events of history.
ALONE, DEEPEST = 200, 6
DAY = 86400.0
SPACING = 60.0
EPOCH = 1_700_000_000.0
STALLED_AFTER = 60.0

processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Load:
    """`events` of `entities` all at once, `rounds` times; then `rate` a second for `seconds`, put to `model` with `paths`
    simulated futures.
    """

    events: int = 20_000
    entities: int = 500
    rounds: int = 3
    rate: float = 100.0
    seconds: float = 30.0
    model: str = "flights"
    paths: int = 64

    def __post_init__(self) -> None:
        if self.events < 2 * self.entities:
            raise StreamTppError(f"{self.events} events of {self.entities} entities are too few: have two of each, or more.")


@dataclass(frozen=True)
class Throughput:
    """Rates in events a second, from the first to the last output, alerts among them: the medians of all rounds. `ratios`
    are those of the topology to the bare agent, ascending, as each round measured both in turn; `ratio` is their median.
    Latencies in ms from the append of an event to that of its warning, or of the newer one that stands for it (`conflated`, of
    all events at the paced load); `sampling_ms` of them the sampler is at work (CPU) on an event that comes alone. Memory is
    that of histories.
    """

    bare_events_per_s: float
    events_per_s: float
    ratio: float
    ratios: list[float]
    latency_ms: dict[str, float]
    sampling_ms: float
    conflated: float
    lost: int
    duplicated: int
    changelog_bytes_per_event: float
    bytes_per_entity: float


@dataclass
class Instant:
    """A forecaster that knows its answer: the topology without sampling. Up to the event time `until` it is alarming."""

    types: tuple[str, ...]
    rule: str
    until: float
    window: int = 256
    version: str = "none"
    horizon: float = DAY
    paths: int = 64

    def forecast(self, requests: Sequence[Request]) -> list[Forecast]:
        share = 1 / len(self.types)
        types, counts = dict.fromkeys(self.types, share), {name: {"mean": 1.0, "p10": 0.0, "p90": 2.0} for name in self.types}
        leads, gaps = {"0.1": 1.0, "0.5": 2.0, "0.9": 3.0}, {"0.1": 1.0, "0.5": 2.0, "0.9": 3.0}
        calm, alarming = (
            Forecast(gaps, types, counts, (Score(self.rule, score, 0.0, 1.0, leads, self.paths),), ()) for score in (0.1, 0.9)
        )
        return [alarming if request.now < self.until else calm for request in requests]


async def measure(connection: Connection, load: Load, fetch_wait: float) -> Throughput:
    """Raises StreamTppError where a worker ends, or gets nothing done for a minute."""
    with tempfile.TemporaryDirectory() as folder:
        bare, whole, ratios = [], [], []
        for _ in range(load.rounds):
            bare.append(await _bare(_settings(connection, load, Path(folder), fetch_wait), load))
            settings = _settings(connection, load, Path(folder), fetch_wait)
            settings = dataclasses.replace(settings, sampler=dataclasses.replace(settings.sampler, conflate=False))
            whole.append(await _whole(settings, load))
            ratios.append(whole[-1] / bare[-1])
        account = await audit(connection, settings.topics, settings.rules)
        changelog, memory = await _histories(settings, load)
        paced = await _paced(_settings(connection, load, Path(folder), fetch_wait), load)
    waits = sorted(_waits(paced))
    again = paced.audit()
    return Throughput(
        bare_events_per_s=median(bare),
        events_per_s=median(whole),
        ratio=median(ratios),
        ratios=sorted(ratios),
        latency_ms={"p50": _ranked(waits, 0.5), "p99": _ranked(waits, 0.99)},
        sampling_ms=1000 * await asyncio.to_thread(_sampling, settings, load),
        conflated=again.conflated / max(again.events_in, 1),
        lost=account.lost + again.lost,
        duplicated=account.duplicated + again.duplicated,
        changelog_bytes_per_event=changelog,
        bytes_per_entity=memory,
    )


def _settings(connection: Connection, load: Load, folder: Path, fetch_wait: float) -> Settings:
    name = f"stream-tpp-bench-{secrets.token_hex(4)}"
    alarm = _types(load)[-1]
    return Settings(
        kafka=connection,
        topics=Topics(
            events=f"{name}-events",
            forecasts=f"{name}-forecasts",
            warnings=f"{name}-warnings",
            alerts=f"{name}-alerts",
            dead_letters=f"{name}-dead-letters",
            partitions=PARTITIONS,
        ),
        forecasts=Forecasts(model=load.model, horizon=DAY, paths=load.paths, pick_up=0.0),
        histories=Histories(folder=folder / name),
        worker=Worker(application=name, fetch_wait=fetch_wait),
        rules=(Rule({alarm}, DAY, 0.5, name="bench"),),
    )


def _types(of: Load) -> tuple[str, ...]:
    return load(folder_of(of.model)).types


async def _bare(settings: Settings, load: Load) -> float:
    topics = settings.topics
    await declare(settings.kafka, [Topic(name, PARTITIONS) for name in (topics.events, topics.forecasts)])
    await _publish(settings, load, load.events)
    with _worker(_run_bare, settings) as running:
        return _rate(await _stamps(settings.kafka, topics.forecasts, load.events, running))


async def _whole(settings: Settings, load: Load) -> float:
    instant = _instant(settings, load)
    app, _ = early_warning.create(settings, instant)
    await declare(settings.kafka, early_warning._topics(app, settings))
    await _publish(settings, load, load.events)
    topics = settings.topics
    with _worker(_run_whole, settings, instant) as running:
        # A light reader while the worker is at work; the auditor, which takes a core of its own, after that.
        await asyncio.gather(
            *(_stamps(settings.kafka, topic, load.events, running) for topic in (topics.forecasts, topics.warnings))
        )
        ledger = await _settled(settings, load.events, running)
    written = [output.timestamp for book in (ledger.warnings, ledger.alerts) for output in book.values()]
    return (load.events - 1) / (max(written) - min(forecast.timestamp for forecast in ledger.forecasts.values()))


def _instant(settings: Settings, load: Load) -> Instant:
    return Instant(_types(load), settings.rules[0].name, EPOCH + SPACING * (load.events - load.entities))


async def _paced(settings: Settings, load: Load) -> Ledger:
    app, _ = early_warning.create(settings)
    # Else an event would bear the time at which its producer began to look for the broker.
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await declare(
        settings.kafka,
        [dataclasses.replace(topic, config={**topic.config, **stamped}) for topic in early_warning._topics(app, settings)],
    )
    events = round(load.rate * load.seconds)
    with _worker(_run_whole, settings, None) as running:
        # What the first forecast costs alone (threads, caches) is the start's.
        await _publish(settings, load, WARM_UP)
        await _settled(settings, WARM_UP, running)
        await _publish(settings, load, events, load.rate)
        return await _settled(settings, WARM_UP + events, running)


def _sampling(settings: Settings, load: Load) -> float:
    """CPU seconds of a forecast and its score, an event at a time, each with all events of its entity before it."""
    _, plugged = early_warning.create(settings)
    forecaster, taken = plugged.forecast_agent.sampler.forecaster, []
    for number in range(ALONE):
        numbers = np.arange(number % load.entities, load.entities * (1 + number % DEEPEST), load.entities)
        history = History((EPOCH + SPACING * numbers).astype(np.float64), numbers * 7 % len(forecaster.types))
        began = time.thread_time()
        forecaster.forecast([Request(str(number), history, float(history.times[-1]), number)])
        taken.append(time.thread_time() - began)
    return median(taken)


async def _settled(settings: Settings, events: int, running: Callable[[], None]) -> Ledger:
    """The books, once nothing is owed for the events."""
    ledger, seen, since = Ledger(settings.topics.events, settings.rules), 0, time.monotonic()
    async for entries in follow(settings.kafka, settings.topics):
        for entry in entries:
            ledger.take(entry)
        if not entries and ledger.settled(events):
            break
        seen, since = _progress(len(entries), seen, since, running)
    return ledger


def _waits(ledger: Ledger) -> Iterator[float]:
    first = sorted(ledger.events, key=lambda place: ledger.events[place].timestamp)[WARM_UP:]
    for place in first:
        by: Place = ledger.conflated.get(place, place)
        warning = ledger.warnings[f"{ledger.forecasts[by].id}:bench"]
        yield 1000 * (warning.timestamp - ledger.events[place].timestamp)


def _ranked(ranked: Sequence[float], quantile: float) -> float:
    return ranked[min(len(ranked) - 1, int(quantile * len(ranked)))]


def _rate(stamps: Sequence[float]) -> float:
    return (len(stamps) - 1) / (max(stamps) - min(stamps))


async def _publish(settings: Settings, load: Load, count: int, rate: float | None = None) -> None:
    types = _types(load)
    async with AIOKafkaProducer(**settings.kafka.client_options(), linger_ms=0 if rate else 20) as producer:
        began = time.monotonic()
        for number in range(count):
            if rate is not None:
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            entity = f"entity-{number % load.entities:05d}"
            event = {"entity": entity, "time": EPOCH + SPACING * number, "type": types[number * 7 % len(types)]}
            await producer.send(settings.topics.events, orjson.dumps(event), entity.encode())
        await producer.flush()


async def _stamps(connection: Connection, topic: str, count: int, running: Callable[[], None]) -> list[float]:
    """When the first `count` records of a topic were stamped (seconds), in order of reading."""
    stamps: list[float] = []
    seen, since = 0, time.monotonic()
    async with _reader(connection, topic) as consumer:
        while len(stamps) < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                stamps += [record.timestamp / 1000 for record in records]
            seen, since = _progress(len(stamps), seen, since, running)
    return sorted(stamps)


def _progress(now: int, seen: int, since: float, running: Callable[[], None]) -> tuple[int, float]:
    running()
    if now != seen:
        return now, time.monotonic()
    if time.monotonic() - since > STALLED_AFTER:
        raise StreamTppError(f"Nothing has come out of the worker for {STALLED_AFTER:.0f} s: look at the broker and its log.")
    return seen, since


@contextlib.asynccontextmanager
async def _reader(connection: Connection, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        **connection.client_options(), auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=50
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        yield consumer


async def _histories(settings: Settings, load: Load) -> tuple[float, float]:
    """Bytes of changelog (key and value) an event, and of memory an entity."""
    app, _ = early_warning.create(settings, _instant(settings, load))
    (name,) = (topic.name for topic in changelogs(app, PARTITIONS) if "-histories-" in topic.name)
    slots, written, count = PackedSlots(), 0, 0
    async with _reader(settings.kafka, name) as consumer:
        while count < load.events:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    slots.offer(record.key, record.value)
                    written += len(record.key) + len(record.value)
                    count += 1
    return written / count, slots.size() / slots.entities()


@contextlib.contextmanager
def _worker(target: Callable[..., None], *args: Any) -> Iterator[Callable[[], None]]:
    """A worker process; the answer raises StreamTppError once it has ended."""
    process = processes.Process(target=target, args=args, daemon=True)
    process.start()

    def running() -> None:
        if not process.is_alive():
            raise StreamTppError("A worker of the benchmark ended before its time: what it wrote above tells why.")

    try:
        yield running
    finally:
        process.terminate()
        process.join(20)
        if process.is_alive():
            process.kill()
            process.join()


def _run_whole(settings: Settings, forecaster: Instant | None) -> None:
    run(lambda: early_warning.create(settings, forecaster)[0])


def _run_bare(settings: Settings) -> None:
    run(lambda: _forwarding(settings))


def _forwarding(settings: Settings) -> faust.App:
    """What Faust alone does: one agent that sends each record on."""
    app = faust.App(
        settings.worker.application,
        autodiscover=False,
        datadir=settings.histories.folder,
        store="memory://",
        topic_partitions=PARTITIONS,
        topic_disable_leader=True,
        web_enabled=False,
        broker_commit_interval=1.0,
        **settings.kafka.faust_options(),
    )
    events = app.topic(settings.topics.events, key_type=bytes, value_type=bytes)
    forwarded = app.topic(settings.topics.forecasts, key_type=bytes, value_type=bytes)

    async def forward(stream: Any) -> None:
        async for event in stream.events():
            await forwarded.send(key=event.key, value=event.value)

    app.agent(events, name="forward")(forward)
    return app
