"""`stream-tpp bench stream` measures on any broker, and accounts for what it sent."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from stream_tpp.cli.bench import command
from tests.brokers.ladder import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_topology_is_measured_beside_a_bare_agent_and_loses_nothing(broker: Broker) -> None:
    small = ["--events", "300", "--entities", "20", "--rounds", "2", "--rate", "20", "--seconds", "3", "--paths", "4"]
    servers = broker.connection.bootstrap_servers
    done = CliRunner().invoke(command, ["stream", "--broker", servers, *small, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = orjson.loads(done.stdout)
    assert (found["lost"], found["duplicated"]) == (0, 0)
    low, high = found["ratios"]
    assert 0 < low <= found["ratio"] <= high
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"]
    # "entity-00001" has 12 bytes; the rest is partition, place and slot.
    assert found["changelog_bytes_per_event"] == 12 + 4 + 2 + 26
    assert found["bytes_per_entity"] > 0
