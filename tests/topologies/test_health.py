"""Health is the truth about the parts: a dead agent, a dead sampler and a stall show; starting and recovering do not alarm."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import faust
import numpy as np
import orjson
import pytest
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.post import Fate, Letter
from stream_tpp.sampling.futures import Stats
from stream_tpp.sampling.prefixes import Prefix, Prefixes
from stream_tpp.topologies import early_warning
from stream_tpp.topologies.broker import FETCH_WAIT, EmbeddedBroker
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.health import Health, Partition
from stream_tpp.topologies.metrics import Metric, _sampled, render
from stream_tpp.topologies.plug import Plugged
from stream_tpp.topologies.settings import Histories, Settings, Topics, Web, Worker
from stream_tpp.topologies.web import WebServer, serve, serve_as_set
from stream_tpp.warning.rule import Rule
from tests.operators.conftest import Engine


@dataclass
class Clock:
    """Tells the time that a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    worker = Worker(session_timeout=2.0, rebalance_timeout=2.0, heartbeat_interval=0.5, fetch_wait=FETCH_WAIT)
    with EmbeddedBroker() as broker:
        yield Settings(
            kafka=Connection(broker.bootstrap_servers),
            topics=Topics(partitions=2),
            histories=Histories(folder=tmp_path),
            worker=worker,
            rules=(Rule({"bad"}, horizon=60.0, threshold=0.5, name="r"),),
        )


@asynccontextmanager
async def running(app: faust.App) -> AsyncIterator[None]:
    await app.start()
    try:
        yield
    finally:
        await app.stop()


async def get(server: WebServer, path: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.get(server.address + path) as answer:
        return answer.status, await answer.json()


async def metrics(server: WebServer) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(server.address + "/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = (await answer.text()).splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


async def until(server: WebServer, name: str, value: float) -> None:
    async with asyncio.timeout(30):
        while (await metrics(server)).get(name) != value:
            await asyncio.sleep(0.02)


async def send_events(app: faust.App, plugged: Plugged, count: int) -> None:
    for number in range(count):
        event = {"entity": f"e{number % 3}", "time": float(number), "type": "bad"}
        await plugged.events.send(key=event["entity"].encode(), value=orjson.dumps(event))


@pytest.mark.slow
async def test_a_worker_is_live_at_once_and_ready_when_its_tables_are(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged), "127.0.0.1", 0)
    starting = asyncio.create_task(app.start())
    while not server._runner.addresses:
        await asyncio.sleep(0.01)
    assert (await get(server, "/livez"))[0] == 200
    status, said = await get(server, "/readyz")
    assert (status, said["ok"]) == (503, False)
    assert said["checks"]["group"] == {"ok": False, "detail": "not joined yet"}
    await starting
    try:
        status, said = await get(server, "/readyz")
        assert (status, said["ok"]) == (200, True)
        assert said["checks"]["tables"]["detail"] == "recovered"
        assert set(said["checks"]) >= {"agent stream-tpp-forecast", "agent stream-tpp-alert", "sampler", "consumer"}
    finally:
        await app.stop()


@pytest.mark.slow
async def test_the_metrics_count_what_went_through(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged), "127.0.0.1", 0)
    async with running(app):
        await send_events(app, plugged, 12)
        await plugged.events.send(key=b"e", value=b"not json")
        await until(server, "stream_tpp_forecasts_total", 12)
        await until(server, "stream_tpp_warnings_read_total", 12)
        await until(server, "stream_tpp_events_in_flight", 0)
        found = await metrics(server)
    assert found["stream_tpp_events_total"] == 13
    assert found['stream_tpp_dead_letters_total{reason="not_json"}'] == 1
    assert found['stream_tpp_alerts_total{state="raised"}'] == 3
    assert found['stream_tpp_model_info{version="model-1"}'] == 1
    assert found["stream_tpp_live"] == found["stream_tpp_ready"] == 1
    assert {name for name in found if name.startswith("stream_tpp_lag")} == {
        f'stream_tpp_lag{{topic="events",partition="{number}"}}' for number in range(2)
    }
    assert found["stream_tpp_last_event_timestamp_seconds"] > 1.7e9


@pytest.mark.slow
async def test_a_dead_agent_is_not_live(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged), "127.0.0.1", 0)
    async with running(app):
        agent: Any = app.agents["stream-tpp-alert"]
        for actor in agent._actors:
            # Its stream ends, its function returns; Faust says nothing and starts no other.
            actor.cancel()
        await asyncio.sleep(0.1)
        for path in ("/livez", "/readyz"):
            status, said = await get(server, path)
            assert status == 503
            assert said["checks"]["agent stream-tpp-alert"] == {"ok": False, "detail": "dead"}
            assert said["checks"]["agent stream-tpp-forecast"]["ok"]
        assert (await metrics(server))["stream_tpp_live"] == 0


@pytest.mark.slow
async def test_a_dead_sampler_is_not_live(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged), "127.0.0.1", 0)
    async with running(app):
        await send_events(app, plugged, 1)
        await until(server, "stream_tpp_forecasts_total", 1)
        plugged.forecast_agent.sampler.stop()
        status, said = await get(server, "/livez")
    assert status == 503
    assert said["checks"]["sampler"] == {"ok": False, "detail": "dead"}


@pytest.mark.slow
async def test_a_partition_that_goes_while_it_is_looked_at_is_no_fault(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged), "127.0.0.1", 0)

    async with running(app):
        # Of partition 9, aiokafka's consumer knows nothing.
        monkeypatch.setattr(app.consumer, "assignment", lambda: {TP("events", 9)})
        with pytest.raises(AssertionError, match="not assigned"):
            app.consumer.highwater(TP("events", 9))
        for path in ("/livez", "/readyz"):
            assert (await get(server, path))[0] == 200
        assert (await metrics(server))["stream_tpp_live"] == 1


@pytest.mark.slow
async def test_events_that_wait_without_progress_are_a_stall(settings: Settings) -> None:
    clock = Clock()
    app, plugged = early_warning.create(settings, Engine())
    app.conf.stream_wait_empty = False  # or the end of the test would wait for the event that never ends
    server = serve(app, Health(app, plugged, stalled_after=60.0, clock=clock), "127.0.0.1", 0)
    async with running(app):
        await send_events(app, plugged, 1)
        await until(server, "stream_tpp_forecasts_total", 1)
        await until(server, "stream_tpp_events_in_flight", 0)
        clock.now = 1000.0
        assert (await get(server, "/livez"))[0] == 200, "nothing waits, however long ago the last event was"
        plugged.forecast_agent.sampler.submit = lambda entity, token, request: None  # type: ignore[method-assign]
        await send_events(app, plugged, 1)
        await until(server, "stream_tpp_events_in_flight", 1)
        assert (await get(server, "/livez"))[0] == 200, "it has only just come"
        clock.now = 1061.0
        status, said = await get(server, "/livez")
    assert status == 503
    assert said["checks"]["consumer"]["detail"] == "1 events wait and none was worked on for 61 s"


@pytest.mark.slow
async def test_a_broker_that_takes_nothing_makes_a_worker_unready_and_not_dead(settings: Settings) -> None:
    clock = Clock()
    app, plugged = early_warning.create(settings, Engine())
    server = serve(app, Health(app, plugged, stalled_after=60.0, clock=clock), "127.0.0.1", 0)
    taken, outbox = asyncio.Event(), plugged.forecast_agent.outbox
    send = outbox._send

    async def held_up(letters: Sequence[Letter]) -> Sequence[Fate]:
        await taken.wait()
        return await send(letters)

    outbox._send = held_up
    async with running(app):
        await send_events(app, plugged, 1)
        async with asyncio.timeout(30):
            while outbox.waits < 2 * settings.worker.session_timeout:
                await asyncio.sleep(0.1)
        clock.now = 1000.0
        assert (await get(server, "/livez"))[0] == 200, "to start it anew would help nobody"
        status, said = await get(server, "/readyz")
        assert status == 503
        assert said["checks"]["deliveries"]["detail"] == "the broker has not taken what was sent for 4 s"
        taken.set()
        await until(server, "stream_tpp_events_in_flight", 0)
        assert (await get(server, "/readyz"))[0] == 200


@pytest.mark.slow
async def test_a_port_in_use_ends_the_start_with_one_sentence(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        serve(app, Health(app, plugged), "127.0.0.1", port)
        with pytest.raises(StreamTppError, match=f"port {port} of 127.0.0.1 is in use: .*STREAM_TPP_WEB_PORT"):
            await app.start()
        await app.stop()


def test_lag_and_unread_are_never_below_zero_and_none_while_unknown() -> None:
    known = Partition(0, position=7, committed=5, end=9)
    assert (known.unread, known.lag) == (2, 4)
    assert Partition(0, position=None, committed=None, end=None).unread == 0
    assert Partition(0, position=None, committed=None, end=9).unread == 0
    # The embedded broker may give an end before what it has handed out.
    behind = replace(known, end=1)
    assert (behind.unread, behind.lag) == (0, 0)


def test_labels_are_escaped_as_prometheus_reads_them() -> None:
    text = render([Metric("m_total", "counter", "Help.", {(("reason", 'a "b"\\\n'),): 2.0})])
    assert text == '# HELP m_total Help.\n# TYPE m_total counter\nm_total{reason="a \\"b\\"\\\\\\n"} 2.0\n'
    assert re.fullmatch(r"(# (HELP|TYPE) .*\n|[a-z_]+(\{.*\})? [0-9.e+-]+\n)+", text)


def test_an_app_made_from_settings_serves_its_health_unless_told_not_to(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    before = list(app.boot_strategy.server())
    serve_as_set(app, plugged, Web(enabled=False))
    assert len(list(app.boot_strategy.server())) == len(before)
    serve_as_set(app, plugged, Web(host="127.0.0.1", port=7077))
    added = [service for service in app.boot_strategy.server() if isinstance(service, WebServer)]
    assert [(server.host, server.port) for server in added] == [("127.0.0.1", 7077)]


@pytest.mark.slow
async def test_a_worker_serves_its_health_on_loopback_and_nothing_of_its_tables(settings: Settings) -> None:
    app, plugged = early_warning.create(settings, Engine())
    serve_as_set(app, plugged, replace(Web(), port=0))
    (server,) = (service for service in app.boot_strategy.server() if isinstance(service, WebServer))
    async with running(app):
        assert [address[0] for address in server._runner.addresses] == ["127.0.0.1"]
        # Where Faust's own server has its pages.
        async with aiohttp.ClientSession() as session:
            for path in ("/", "/tables/", f"/tables/{plugged.histories.name}/", "/router/", "/graph/", "/stats/"):
                async with session.get(server.address + path) as answer:
                    assert answer.status == 404
        assert "Web" not in [service.label for service in app.boot_strategy.server()]


def test_what_sampling_cost_is_counted_where_the_engine_adds_it_up(settings: Settings) -> None:
    engine = Engine()
    engine.stats = Stats(target_passes=2, row_passes=8, drafted=30, accepted=24, events=32)  # type: ignore[attr-defined]
    text = render(_sampled(engine))
    assert "stream_tpp_sampler_drafted_total 30.0\n" in text
    assert "stream_tpp_sampler_accepted_total 24.0\n" in text
    assert "stream_tpp_sampler_row_passes_total 8.0\n" in text


def test_what_is_kept_of_histories_is_counted_and_weighed() -> None:
    engine = Engine()
    engine.prefixes = prefixes = Prefixes()  # type: ignore[attr-defined]
    prefix = Prefix(np.zeros((4, 3), np.int64), *[np.zeros((1, 2, 8, 32), np.float32)] * 5)
    for known in (0, 2, 3):
        prefixes.keep("one", prefix, known)
    text = render(_sampled(engine))
    assert "stream_tpp_prefix_hits_total 2.0\n" in text
    assert "stream_tpp_prefix_misses_total 1.0\n" in text
    assert "stream_tpp_prefix_evictions_total 0.0\n" in text
    assert f"stream_tpp_prefix_bytes {float(4 * 24 + 5 * 4 * 512)!r}\n" in text
