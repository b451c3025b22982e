"""Fixtures: a broker for tests that any will do for, and Apache Kafka for those that it alone will do for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.kafka import KafkaCluster, KafkaUnavailable
from tests.brokers.ladder import Broker, climb


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The best broker there is, one for the whole run: give topics and groups names of your own."""
    with climb() as best:
        yield best


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> Broker:
    """Apache Kafka, one for the whole run: give topics and groups names of your own. Skips where there is none."""
    if not broker.is_kafka:
        pytest.skip("needs Apache Kafka, and there is none here")
    return broker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A Kafka node of the test's own, which it may kill and start again."""
    try:
        own = KafkaCluster(tmp_path)
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka of our own: {error}")
    with own:
        yield own


@pytest.fixture
def name() -> str:
    """A name that no other test's topics and groups begin with."""
    return f"t{uuid.uuid4().hex[:10]}"
