"""Apache Kafka of the fault tests' own, which workers may reach through a proxy, and the fleet on it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Histories, Settings, Topics, Worker
from stream_tpp.warning.rule import Rule
from tests.brokers.kafka import HOST, KafkaCluster, KafkaUnavailable
from tests.faults.engine import RULE
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic


class FaultyKafka(KafkaCluster):
    """Kafka with a second listener, on `behind` for clients that were told `proxy_port`; it compacts eagerly."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        with socket.socket() as claim:
            claim.bind((HOST, 0))
            self.proxy_port: int = claim.getsockname()[1]
        super().__init__(folder, nodes)

    @property
    def behind(self) -> int:
        # No listener of ours is secured, so the port for that is free.
        return self.ports[0].secured

    @property
    def proxied_connection(self) -> Connection:
        return Connection(f"{HOST}:{self.proxy_port}")

    def _settings(self, number: int) -> dict[str, object]:
        settings = super()._settings(number)
        port = self.ports[number - 1].secured
        return settings | {
            "listeners": f"{settings['listeners']},PROXIED://{HOST}:{port}",
            "advertised.listeners": f"{settings['advertised.listeners']},PROXIED://{HOST}:{self.proxy_port}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},PROXIED:PLAINTEXT",
            "log.cleaner.backoff.ms": 500,
        }


@pytest.fixture(scope="session")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyKafka]:
    """One node that the tests may kill, if they start it again."""
    try:
        own = FaultyKafka(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka of our own: {error}")
    with own:
        yield own


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether faults are to last and repeat as long as in life, rather than as long as a test may take."""
    return bool(os.environ.get("STREAM_TPP_SOAK"))


@pytest.fixture
def settings(own_kafka: FaultyKafka, name: str, tmp_path: Path) -> Settings:
    return settings_for(own_kafka.connection, name, tmp_path)


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


def settings_for(connection: Connection, name: str, folder: Path, partitions: int = 4, replication: int = 1) -> Settings:
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
        histories=Histories(window=16, folder=folder),
        worker=Worker(application=name),
        rules=(Rule({"bad"}, horizon=60, threshold=0.5, clear=0.3, name=RULE),),
    )
