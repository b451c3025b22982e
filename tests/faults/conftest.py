"""Apache Kafka of the fault tests' own, whose workers may be reached through a proxy, and the fleet on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Histories, Settings, Topics, Worker
from stream_tpp.warning.rule import Rule
from tests.brokers.kafka import KafkaCluster, KafkaUnavailable
from tests.faults.engine import RULE
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic


@pytest.fixture(scope="session")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One node that the tests may kill, if they start it again."""
    try:
        own = KafkaCluster(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka of our own: {error}")
    with own:
        yield own


def settings_for(connection: Connection, name: str, partitions: int = 4, replication: int = 1) -> Settings:
    """Settings with topics and a group of the test's own; everything else as a user gets it."""
    return Settings(
        kafka=connection,
        topics=Topics(
            events=f"{name}-events",
            forecasts=f"{name}-forecasts",
            warnings=f"{name}-warnings",
            alerts=f"{name}-alerts",
            dead_letters=f"{name}-dead",
            partitions=partitions,
            replication=replication,
        ),
        histories=Histories(window=16),
        worker=Worker(application=name),
        rules=(Rule({"bad"}, horizon=60, threshold=0.5, clear=0.3, name=RULE),),
    )


@pytest.fixture
def settings(own_kafka: KafkaCluster, name: str) -> Settings:
    return settings_for(own_kafka.connection, name)


@pytest.fixture
def fleet(settings: Settings, tmp_path: Path) -> Iterator[Fleet]:
    """No worker yet; those that the test starts end with it."""
    workers = Fleet(settings, tmp_path)
    try:
        yield workers
    finally:
        workers.stop()


@pytest.fixture
async def traffic(settings: Settings, fleet: Fleet) -> AsyncIterator[Traffic]:
    """Silent until it is told to flow. The topics exist once the first worker is ready."""
    async with Traffic(settings.kafka, settings.topics.events) as source:
        yield source
