"""A Faust worker asks for the fetch wait that it was given, and works."""

import asyncio
from pathlib import Path

import faust
import pytest

from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.topics import Topic, declare
from stream_tpp.topologies.transport import set_fetch_wait


@pytest.mark.parametrize("fetch_wait", [0.02, 0.75])
async def test_the_worker_fetches_with_the_wait_it_was_given(fetch_wait: float, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        connection = Connection(broker.bootstrap_servers)
        await declare(connection, [Topic("events", 1)])
        app = faust.App(
            "wards",
            autodiscover=False,
            datadir=str(tmp_path),
            web_enabled=False,
            topic_disable_leader=True,
            broker_session_timeout=2,
            broker_rebalance_timeout=2,
            broker_heartbeat_interval=0.5,
            **connection.faust_options(),
        )
        set_fetch_wait(app, fetch_wait)
        events = app.topic("events", key_type=bytes, value_type=bytes, value_serializer="raw")
        seen: asyncio.Queue[bytes] = asyncio.Queue()

        @app.agent(events)
        async def read(stream: faust.StreamT[bytes]) -> None:
            async for value in stream:
                await seen.put(value)

        await app.start()
        try:
            await events.send(value=b"an event")
            assert await asyncio.wait_for(seen.get(), 30) == b"an event"
            asked = app.consumer._thread._consumer._fetcher._fetch_max_wait_ms
        finally:
            await app.stop()
    assert asked == fetch_wait * 1000
