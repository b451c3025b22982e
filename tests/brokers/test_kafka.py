"""The brokers of the tests: records go round, what Kafka promises holds, and a killed node comes back with its records."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.connection import Connection, count_brokers
from stream_tpp.topologies.topics import Topic, WrongPartitions, declare
from tests.brokers import kafka as module
from tests.brokers.kafka import KafkaCluster, KafkaUnavailable
from tests.brokers.ladder import Broker

pytestmark = pytest.mark.slow


async def send(connection: Connection, topic: str, values: list[bytes]) -> None:
    async with AIOKafkaProducer(**connection.client_options()) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, key=b"entity", partition=0)


async def read(connection: Connection, topic: str, count: int) -> list[bytes]:
    options = connection.client_options()
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", fetch_max_wait_ms=20, **options) as consumer:
        return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(count)]


async def test_records_go_round_in_order(broker: Broker, name: str) -> None:
    await declare(broker.connection, [Topic(name, 2)])
    sent = [b"%d" % number for number in range(100)]
    await send(broker.connection, name, sent)
    assert await read(broker.connection, name, 100) == sent


async def test_end_offsets_count_every_record_of_a_batch(kafka: Broker, name: str) -> None:
    await declare(kafka.connection, [Topic(name, 1)])
    options = kafka.connection.client_options()
    async with AIOKafkaProducer(linger_ms=50, **options) as producer:
        await asyncio.gather(*[await producer.send(name, b"%d" % number, partition=0) for number in range(10)])
    async with AIOKafkaConsumer(**options) as consumer:
        place = TopicPartition(name, 0)
        assert await consumer.end_offsets([place]) == {place: 10}


async def test_the_width_of_a_topic_is_checked_on_kafka_too(kafka: Broker, name: str) -> None:
    assert await declare(kafka.connection, [Topic(name, 3, config={"cleanup.policy": "compact"})]) == [name]
    with pytest.raises(WrongPartitions, match=f"'{name}' has 3 partitions, 4 wanted"):
        await declare(kafka.connection, [Topic(name, 4)])


async def test_a_topic_that_kafka_refuses_is_named_with_the_reason(kafka: Broker, name: str) -> None:
    with pytest.raises(StreamTppError, match=f"will not create the topic '{name}/x': .*(?i:invalid)"):
        await declare(kafka.connection, [Topic(f"{name}/x", 1)])
    with pytest.raises(StreamTppError, match=f"will not create the topic '{name}': .*(?i:replication)"):
        await declare(kafka.connection, [Topic(name, 1, replication=99)])


async def test_what_was_acknowledged_survives_the_death_of_its_node(cluster: KafkaCluster) -> None:
    await declare(cluster.connection, [Topic("events", 1)])
    await send(cluster.connection, "events", [b"before"])
    cluster.kill_node(1)
    assert count_brokers(cluster.connection) == 0
    cluster.start_node(1)
    cluster.await_nodes(1)
    await send(cluster.connection, "events", [b"after"])
    assert await read(cluster.connection, "events", 2) == [b"before", b"after"]


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KafkaUnavailable, match=r"needs Java 17, this is openjdk version .11\.0\.2"):
        module.java()


def test_without_maven_the_jars_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(KafkaUnavailable, match="no mvn"):
        module.classpath()
