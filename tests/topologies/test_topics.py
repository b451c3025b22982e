"""Topics are as wanted when anything reads them, or the start ends with a sentence."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import faust
import pytest

from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import BrokerUnreachable, Connection, connect
from stream_tpp.topologies.topics import Topic, WrongPartitions, changelogs, declare, declare_at_start


@pytest.fixture
def connection() -> Iterator[Connection]:
    with EmbeddedBroker() as broker:
        yield Connection(broker.bootstrap_servers)


async def partitions(connection: Connection) -> dict[str, int]:
    client = await connect(connection)
    try:
        return {topic["topic"]: len(topic["partitions"]) for topic in await client.describe_topics()}
    finally:
        await client.close()


async def test_missing_topics_are_created_with_their_partitions_and_only_once(connection: Connection) -> None:
    wanted = [Topic("events", 4), Topic("alerts", 1, config={"cleanup.policy": "compact"})]
    assert await declare(connection, wanted) == ["events", "alerts"]
    assert await partitions(connection) == {"events": 4, "alerts": 1}
    assert await declare(connection, wanted) == []


async def test_another_number_of_partitions_names_topic_found_wanted_and_the_fix(connection: Connection) -> None:
    await declare(connection, [Topic("events", 3), Topic("alerts", 1)])
    with pytest.raises(WrongPartitions) as caught:
        await declare(connection, [Topic("events", 2), Topic("alerts", 2), Topic("new", 2)])
    sentence = str(caught.value)
    assert "'events' has 3 partitions, 2 wanted" in sentence
    assert "STREAM_TPP_TOPICS_PARTITIONS=3" in sentence
    assert "or delete the topic" in sentence
    assert "'alerts' has 1 partition, 2 wanted" in sentence
    assert "kafka-topics.sh --alter --topic alerts --partitions 2" in sentence
    assert "new" not in await partitions(connection)


async def test_two_workers_that_start_at_once_both_find_their_topics(connection: Connection) -> None:
    wanted = [Topic(f"topic-{number}", 2) for number in range(8)]
    await asyncio.gather(declare(connection, wanted), declare(connection, wanted))
    assert await partitions(connection) == {topic.name: 2 for topic in wanted}


async def test_no_broker_is_one_sentence_within_the_time_given() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{unused.getsockname()[1]}"
        refused = rf"No Kafka broker answers at {server} \(connection refused\): .*KAFKA_BOOTSTRAP_SERVERS"
        with pytest.raises(BrokerUnreachable, match=refused):
            await declare(Connection(server), [Topic("events", 1)], within=0.3)


async def test_a_port_where_something_else_than_kafka_listens_is_no_broker() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        with pytest.raises(BrokerUnreachable):
            await declare(Connection(f"{address[0]}:{address[1]}"), [Topic("events", 1)], within=0.5)


async def test_a_broker_that_is_still_starting_is_waited_for() -> None:
    broker = EmbeddedBroker(free_port())
    waiting = asyncio.create_task(declare(Connection(broker.bootstrap_servers), [Topic("events", 1)]))
    await asyncio.sleep(0.3)
    with broker:
        assert await waiting == ["events"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def app_of(connection: Connection, folder: Path) -> faust.App:
    app = faust.App(
        "wards",
        autodiscover=False,
        datadir=str(folder),
        web_enabled=False,
        topic_disable_leader=True,
        broker_session_timeout=2,  # the embedded broker lets a first member in after about half of it
        broker_rebalance_timeout=2,
        broker_heartbeat_interval=0.5,
        **connection.faust_options(),
    )
    app.Table("histories", key_type=bytes, value_type=bytes, partitions=3)
    app.Table("alerts", key_type=bytes, value_type=bytes)
    return app


def test_the_changelogs_of_an_app_are_compacted_and_as_wide_as_their_tables(connection: Connection, tmp_path: Path) -> None:
    found = list(changelogs(app_of(connection, tmp_path), partitions=5))
    compacted = {"cleanup.policy": "compact"}
    assert found == [
        Topic("wards-histories-changelog", 3, 1, compacted),
        Topic("wards-alerts-changelog", 5, 1, compacted),
    ]


@pytest.mark.slow
async def test_an_app_declares_its_topics_and_changelogs_before_it_reads(connection: Connection, tmp_path: Path) -> None:
    app = app_of(connection, tmp_path)
    declare_at_start(app, connection, lambda: [Topic("events", 3), *changelogs(app, partitions=3)])
    try:
        await app.start()
        found = await partitions(connection)
    finally:
        await app.stop()
    assert found["events"] == found["wards-histories-changelog"] == found["wards-alerts-changelog"] == 3


@pytest.mark.slow
async def test_an_app_does_not_start_over_a_topic_of_another_width(connection: Connection, tmp_path: Path) -> None:
    await declare(connection, [Topic("wards-histories-changelog", 2)])
    app = app_of(connection, tmp_path)
    declare_at_start(app, connection, lambda: changelogs(app, partitions=3))
    with pytest.raises(WrongPartitions, match="'wards-histories-changelog' has 2 partitions, 3 wanted"):
        await app.start()
    await app.stop()
