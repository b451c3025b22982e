import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner, Result

from stream_tpp.cli.main import cli
from stream_tpp.topologies.broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as running:
        yield running.bootstrap_servers


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.csv"
    rows = [f"device {n % 3},{n * 1000},x\n" for n in range(100)]
    path.write_text("device,at,type\n" + "".join(rows))
    return str(path)


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", *arguments])


COLUMNS = ("--entity", "device", "--time", "at", "--time-unit", "ms")


def test_json_is_one_document_with_events_and_seconds(broker: str, log: str) -> None:
    result = replay(log, *COLUMNS, "--topic", "whole", "--broker", broker, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["events"] == 100
    assert document["seconds"] > 0


def test_from_is_in_and_to_is_out(broker: str, log: str) -> None:
    result = replay(log, *COLUMNS, "--topic", "part", "--broker", broker, "--from", "10000", "--to", "1970-01-01T00:00:20Z")
    assert result.exit_code == 0
    assert result.stdout.startswith("10 events published to part in ")


def test_the_broker_may_come_from_the_environment(broker: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    assert replay(log, *COLUMNS, "--topic", "environment", "--speed", "1e6").exit_code == 0


@pytest.mark.slow
def test_without_a_broker_one_sentence_and_exit_code_1(log: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = replay(log, *COLUMNS, "--topic", "t", "--broker", f"127.0.0.1:{unused.getsockname()[1]}", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: No Kafka broker answers at 127.0.0.1:")
    assert len(result.stderr.splitlines()) == 1


def test_a_bad_row_is_said_before_anything_is_published(broker: str, log: str) -> None:
    result = replay(log, "--topic", "bad", "--broker", broker)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no column 'entity' for the entity: name one of device, at, type with --entity." in result.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--topic", "t", "--speed", "0"], ["--topic", "t", "--speed", "fast"], ["--topic", "t", "--to", "noon"]]
)
def test_wrong_use_is_exit_code_2(log: str, arguments: list[str]) -> None:
    assert replay(log, *arguments).exit_code == 2


async def first_record(broker: str, topic: str) -> None:
    """Wait for it: a signal is for a replay under way, not for an interpreter that still imports."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker, auto_offset_reset="earliest", metadata_max_age_ms=500)
    async with consumer:
        await asyncio.wait_for(consumer.getone(), 60)


@pytest.mark.slow
def test_ctrl_c_ends_a_replay_without_a_traceback(broker: str, log: str) -> None:
    command = [sys.executable, "-c", "from stream_tpp.cli.main import main; main()", "replay", log, *COLUMNS]
    running = subprocess.Popen([*command, "--topic", "long", "--broker", broker, "--speed", "0.001"], stderr=subprocess.PIPE)
    asyncio.run(first_record(broker, "long"))
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=20)
    assert (running.returncode, stderr) == (130, b"Interrupted.\n")
