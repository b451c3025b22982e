"""The broker that tests run against, the best there is.

In this order: KAFKA_BOOTSTRAP_SERVERS; a container, where a Docker engine runs; Apache Kafka from Maven Central's jars,
where Java and Maven are; the embedded broker. KAFKA_TEST_RUNGS="jars,embedded" leaves rungs out.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies import broker as embedded
from stream_tpp.topologies.connection import Connection
from tests.brokers.kafka import KafkaCluster, KafkaUnavailable

Rung = Literal["given", "container", "jars", "embedded"]


@dataclass(frozen=True)
class Broker:
    """A running broker, and the rung of the ladder that it stands on."""

    rung: Rung
    connection: Connection

    @property
    def is_kafka(self) -> bool:
        """Whether it has what Kafka has: transactions, right end offsets, restarts; taken on trust where one is given."""
        return self.rung != "embedded"

    @property
    def fetch_wait(self) -> float:
        """How long (seconds) a worker should let it hold a fetch."""
        return 0.5 if self.is_kafka else embedded.FETCH_WAIT


class NoBroker(Exception):
    """This rung can't be climbed here; the message says why."""


@contextmanager
def given() -> Iterator[Broker]:
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if not servers:
        raise NoBroker("KAFKA_BOOTSTRAP_SERVERS is not set")
    yield Broker("given", Connection(servers))


@contextmanager
def container() -> Iterator[Broker]:
    import docker  # type: ignore[import-untyped]
    from docker.errors import DockerException  # type: ignore[import-untyped]

    try:
        docker.from_env(timeout=5).ping()
    except DockerException as error:
        raise NoBroker(f"no Docker engine runs: {error}") from error
    from testcontainers.kafka import KafkaContainer

    with KafkaContainer().with_kraft() as kafka:
        yield Broker("container", Connection(kafka.get_bootstrap_server()))


@contextmanager
def jars() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="stream-tpp-kafka-", ignore_cleanup_errors=True) as folder:
        try:
            cluster = KafkaCluster(Path(folder))
        except KafkaUnavailable as error:
            raise NoBroker(str(error)) from error
        with cluster:
            yield Broker("jars", cluster.connection)


@contextmanager
def in_memory() -> Iterator[Broker]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(embedded.EmbeddedBroker())
        except StreamTppError as error:
            raise NoBroker(str(error)) from error
        yield Broker("embedded", Connection(running.bootstrap_servers))


RUNGS: Mapping[Rung, Callable[[], AbstractContextManager[Broker]]] = {
    "given": given,
    "container": container,
    "jars": jars,
    "embedded": in_memory,
}


@contextmanager
def climb() -> Iterator[Broker]:
    """The best broker there is. Raises NoBroker with the reason against each rung."""
    with ExitStack() as stack:
        yield _best(stack)


def _best(stack: ExitStack) -> Broker:
    reasons: list[str] = []
    for rung in _allowed():
        try:
            broker = stack.enter_context(RUNGS[rung]())
        except (NoBroker, ImportError) as error:
            reasons.append(f"{rung}: {error}")
            continue
        if reasons and not broker.is_kafka:
            # Said aloud: a suite that passed on the embedded broker has not met Kafka.
            warnings.warn(f"No Apache Kafka here ({'; '.join(reasons)}).", stacklevel=2)
        return broker
    raise NoBroker("; ".join(reasons))


def _allowed() -> tuple[Rung, ...]:
    named = os.environ.get("KAFKA_TEST_RUNGS")
    if not named:
        return get_args(Rung)
    unknown = set(named.split(",")) - set(RUNGS)
    if unknown:
        raise ValueError(f"KAFKA_TEST_RUNGS names {', '.join(sorted(unknown))}: there are {', '.join(RUNGS)}")
    return tuple(rung for rung in RUNGS if rung in named.split(","))
