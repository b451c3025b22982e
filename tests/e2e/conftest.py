"""A worker's settings on Apache Kafka: the model of flights that ships, topics of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_tpp.logs.flights import CANCELLED, LATE, VERY_LATE
from stream_tpp.topologies.settings import Forecasts, Histories, Sampler, Settings, Topics, Worker
from stream_tpp.warning.rule import Rule
from tests.brokers.ladder import Broker

QUARTER_DAY = 6 * 3600.0


@pytest.fixture
def settings(kafka: Broker, name: str, tmp_path: Path) -> Settings:
    """Few paths, so that 5,000 events take a minute, each with its forecast; two rules, whose thresholds scores cross."""
    return Settings(
        kafka=kafka.connection,
        topics=Topics(
            events=f"{name}-events",
            forecasts=f"{name}-forecasts",
            warnings=f"{name}-warnings",
            alerts=f"{name}-alerts",
            dead_letters=f"{name}-dead-letters",
        ),
        forecasts=Forecasts(model="flights", horizon=QUARTER_DAY, paths=4),
        sampler=Sampler(max_batch=64, conflate=False),
        histories=Histories(folder=tmp_path / "data"),
        worker=Worker(application=name),
        rules=(
            Rule({CANCELLED}, QUARTER_DAY, threshold=0.03, clear=0.015, name="cancelled"),
            Rule({LATE, VERY_LATE}, QUARTER_DAY, threshold=0.2, clear=0.1, name="late"),
        ),
    )
