"""The demo's processes: a broker, a worker on the early-warning topology, the replay of events, and the audit."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import socket
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from stream_tpp.cli.demo_flights import DAY, FORECAST_HORIZON, RULE, Flights, bad_records, busiest
from stream_tpp.cli.live import Screen
from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.audit import follow, read
from stream_tpp.topologies.broker import FETCH_WAIT, EmbeddedBroker
from stream_tpp.topologies.child import Child
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.ledger import Entry, Ledger
from stream_tpp.topologies.plug import folder_of
from stream_tpp.topologies.replay import publish
from stream_tpp.topologies.settings import Settings, Topics, load
from stream_tpp.topologies.topics import Topic, declare
from stream_tpp.topologies.trickle import trickle

PARTITIONS = 4
PATHS = 32
PUBLISHED = 24

# The busiest hours of the replay come at this share of the rate that the worker reached on the warm-up. A machine on which
# that takes longer than REPLAY_WITHIN seconds replays fewer days.
LOAD = 0.7
REPLAY_WITHIN = 150.0
MAX_BATCH = 32
# Eight at once cost half as much each as two do; worth waiting for.
MAX_WAIT = 0.02
# Slower than none with this small model on a CPU (see `[forecasts] draft_length`), but what drafting does is to be seen.
DRAFT_LENGTH = 2
STARTED_WITHIN = 300.0
STALLED_AFTER = 60.0
STOPPED_WITHIN = 30.0
EMBEDDED = "embedded"
NAME = "stream-tpp-demo"


@dataclass
class Run:
    """A run under way: where it writes, how it reaches Kafka, what its topics have said."""

    folder: Path
    settings: Settings
    broker: str
    flights: Flights
    ledger: Ledger
    speed: float = 0.0
    capacity: float = 0.0
    published: int = 0
    judged_from: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def broker_of(environment: Mapping[str, str]) -> Iterator[tuple[Settings, str]]:
    """The settings in the environment; with a broker of our own, unless they name one."""
    settings = load(None, environment)
    if any(environment.get(name) for name in ("KAFKA_BOOTSTRAP_SERVERS", "STREAM_TPP_KAFKA_BOOTSTRAP_SERVERS")):
        yield settings, settings.kafka.bootstrap_servers
        return
    with EmbeddedBroker() as broker:
        worker = dataclasses.replace(settings.worker, fetch_wait=FETCH_WAIT)
        yield dataclasses.replace(settings, kafka=Connection(broker.bootstrap_servers), worker=worker), EMBEDDED


def model_folder(settings: Settings) -> Path:
    """Where the model lies that the settings name: a folder, or one that ships with the package."""
    return folder_of(settings.forecasts.model)


def prepare(folder: Path, settings: Settings, broker: str, flights: Flights) -> Run:
    """A run with topics of its own name, so that runs on the same broker don't mix.

    A broker of our own sees one run, always under the same name: the seeds of simulated futures are made of it, and so the
    same flights give the same forecasts.
    """
    name = NAME if broker == EMBEDDED else f"{NAME}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    topics = Topics(
        events=f"{name}-events",
        forecasts=f"{name}-forecasts",
        warnings=f"{name}-warnings",
        alerts=f"{name}-alerts",
        dead_letters=f"{name}-dead-letters",
        partitions=PARTITIONS,
        replication=settings.topics.replication,
    )
    settings = dataclasses.replace(
        settings,
        topics=topics,
        forecasts=dataclasses.replace(
            settings.forecasts, horizon=FORECAST_HORIZON, paths=PATHS, futures=PUBLISHED, draft_length=DRAFT_LENGTH
        ),
        sampler=dataclasses.replace(settings.sampler, max_batch=MAX_BATCH, max_wait=MAX_WAIT, conflate=False),
        histories=dataclasses.replace(settings.histories, grace=DAY, folder=folder / "worker-data"),
        worker=dataclasses.replace(settings.worker, application=name),
        web=dataclasses.replace(settings.web, host="127.0.0.1", port=_free_port()),
        rules=(RULE,),
    )
    return Run(folder, settings, broker, flights, Ledger(topics.events, settings.rules))


async def rehearse(run: Run, screen: Screen, cut: bool) -> None:
    """Replay the flights through a worker, to the end; then stop it and read all topics again, from their start.

    With `cut`, only as many days as are replayed in good time.
    """
    names = dataclasses.astuple(run.settings.topics)[:5]
    await declare(run.settings.kafka, [Topic(name, PARTITIONS, run.settings.topics.replication) for name in names])
    with _worker(run) as worker:
        async with _followed(run, screen) as booking:
            await _replay(Stage(run, worker, booking, screen), cut)
            run.metrics = await asyncio.to_thread(_metrics, run.settings.web.port)
            screen.view.stage = "stopping the worker"
            screen.tick()
        await asyncio.to_thread(_stop, worker)
    run.ledger = Ledger(run.settings.topics.events, run.settings.rules)
    async for entry in read(run.settings.kafka, run.settings.topics):
        run.ledger.take(entry)
        run.entries.append(entry)


@dataclass(frozen=True)
class Stage:
    """What goes on at once: a worker, the booking of what is written to the topics, the view of it."""

    run: Run
    worker: Child
    booking: asyncio.Task[None]
    screen: Screen

    async def until_ready(self) -> None:
        """Wait until the worker reads its topics: the first one on a machine compiles the sampler before."""
        began = time.monotonic()
        while not await asyncio.to_thread(_ready, self.run.settings.web.port):
            await self._pause()
            if time.monotonic() - began > STARTED_WITHIN:
                within = f"{STARTED_WITHIN:.0f} s"
                raise StreamTppError(f"The worker was not ready within {within}: look into its log, {self.worker.log}.")

    async def until_settled(self, events: int) -> None:
        """Wait until so many events, and all that is owed for them, are on the topics."""
        view, seen, since = self.screen.view, -1, time.monotonic()
        while not self.run.ledger.settled(events):
            await self._pause()
            if view.seen > seen:
                seen, since = view.seen, time.monotonic()
            elif time.monotonic() - since > STALLED_AFTER:
                raise StreamTppError(
                    f"Nothing has come out of the worker for {STALLED_AFTER:.0f} s, with {view.done} of {events} events done: "
                    f"look into its log, {self.worker.log}."
                )

    async def _pause(self) -> None:
        """A moment. Raises StreamTppError where the worker, or the booking, has ended."""
        self.screen.tick()
        await asyncio.sleep(0.1)
        if self.booking.done():
            self.booking.result()
        if not self.worker.running:
            words, log = self.worker.last_words(), self.worker.log
            raise StreamTppError(f"The worker ended in the middle of the run ({words}). Its log: {log}.")


async def _replay(stage: Stage, cut: bool) -> None:
    """The warm-up at full speed, which tells how much the worker can do; the judged days at a pace that it can keep."""
    run, view = stage.run, stage.screen.view
    kafka, events = run.settings.kafka, run.settings.topics.events
    view.stage = "starting the worker (the first one compiles the sampler: a minute)"
    await stage.until_ready()
    view.stage = "warming up"
    await publish(run.flights.warm_up, events, kafka, partitions=PARTITIONS)
    await stage.until_settled(len(run.flights.warm_up))
    run.capacity = _capacity(run.ledger)
    run.speed = LOAD * run.capacity / busiest(run.flights.judged)
    if cut:
        run.flights = run.flights.first(max(1, int(REPLAY_WITHIN * run.speed / DAY)))
    flights, seconds = run.flights, (run.flights.until - run.flights.since) / run.speed
    bad = bad_records(flights.judged[0].entity, flights.since)
    run.published = view.total = flights.total + len(bad)
    run.judged_from = time.time()
    view.stage = f"replaying at {run.speed:,.0f} times its speed"
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish(flights.judged, events, kafka, run.speed, PARTITIONS))
            tasks.create_task(trickle(bad, events, kafka, seconds))
            tasks.create_task(stage.until_settled(run.published))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


@contextlib.asynccontextmanager
async def _followed(run: Run, screen: Screen) -> AsyncIterator[asyncio.Task[None]]:
    """Meanwhile, whatever is written to the topics is booked and shown."""

    async def book() -> None:
        async for entries in follow(run.settings.kafka, run.settings.topics):
            for entry in entries:
                run.ledger.take(entry)
            screen.view.take(entries)

    booking = asyncio.create_task(book())
    try:
        with screen.running():
            yield booking
    finally:
        booking.cancel()
        await asyncio.wait([booking])


@contextlib.contextmanager
def _worker(run: Run) -> Iterator[Child]:
    """A worker process, which ends with the block."""
    config = run.folder / "settings.toml"
    config.write_text(toml(run.settings), encoding="utf-8")
    # What else the environment sets for workers is not meant for this one; credentials are, and belong in no file.
    environment = {name: value for name, value in os.environ.items() if _is_ours(name)}
    # Its tensors are small, and the other core has a broker and this process to run.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment["KAFKA_BOOTSTRAP_SERVERS"] = run.settings.kafka.bootstrap_servers
    main = "from stream_tpp.cli.main import main; main()"
    command = [sys.executable, "-c", main, "--log-level", "info", "worker", "early_warning", "--config", str(config)]
    worker = Child(command, run.folder / "worker.log", environment=environment)
    try:
        yield worker
    finally:
        worker.end()


def _is_ours(name: str) -> bool:
    return not name.startswith("STREAM_TPP_") or (name.startswith("STREAM_TPP_KAFKA_") and not name.endswith("_SERVERS"))


def _stop(worker: Child) -> None:
    code = worker.end(STOPPED_WITHIN)
    if code != 0:
        raise StreamTppError(f"The worker did not stop cleanly (exit code {code}, {worker.last_words()}). Its log: {worker.log}.")


def _capacity(ledger: Ledger) -> float:
    """Forecasts a second, over the later two thirds of those so far: the first ones pay for the worker's start."""
    written = sorted(forecast.timestamp for forecast in ledger.forecasts.values())
    steady = written[len(written) // 3 :]
    return len(steady) / max(steady[-1] - steady[0], 0.1)


def _metrics(port: int) -> dict[str, float]:
    """The worker's own counters, {} where it serves none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    rows = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def _ready(port: int) -> bool:
    """Whether the worker says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as claim:
        claim.bind(("127.0.0.1", 0))
        return int(claim.getsockname()[1])


def toml(settings: Settings) -> str:
    """Settings as a file that `worker --config` reads; how to reach Kafka is left to the environment."""
    lines = ["# Written by stream-tpp demo."]
    for section in ("topics", "forecasts", "sampler", "histories", "worker", "web"):
        lines += ["", f"[{section}]", *_assignments(getattr(settings, section))]
    for rule in settings.rules:
        lines += ["", "[[rules]]", *_assignments(rule)]
    return "\n".join([*lines, ""])


def _assignments(section: Any) -> list[str]:
    """TOML has no null: what is None is left to its default."""
    return [f"{name} = {_toml(value)}" for name, value in dataclasses.asdict(section).items() if value is not None]


def _toml(value: object) -> str:
    if isinstance(value, frozenset):
        return json.dumps(sorted(value))
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
