"""A worker ended by a signal is a success; one that died says of what, and fails."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_tpp.topologies.broker import EmbeddedBroker

APP = """
import asyncio, sys
import faust
from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.run import run
from stream_tpp.topologies.topics import Topic, declare_at_start

server, port, fate = sys.argv[1:]

def create():
    connection = Connection(server)
    app = faust.App(
        f"app-{fate}", **connection.faust_options(), datadir=sys.path[0] + "/data",
        web_enabled=port != "0", web_bind="127.0.0.1", web_port=int(port) or 6066,
        broker_session_timeout=6.0, broker_rebalance_timeout=6.0, broker_heartbeat_interval=1.0,
    )
    declare_at_start(app, connection, lambda: [Topic("events", 1)])
    app.agent(app.topic("events", value_type=bytes))(nothing)
    app.task(die)
    return app

async def nothing(stream):
    async for value in stream:
        pass

async def die():
    if fate == "sentence":
        raise StreamTppError("The model is gone: fit one.")
    if fate == "fault":
        raise ValueError("boom")

try:
    run(create, lambda: print("ready", file=sys.stderr, flush=True))
except StreamTppError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as running:
        yield running.bootstrap_servers


def start(folder: Path, server: str, port: int = 0, fate: str = "live") -> subprocess.Popen[str]:
    (folder / "app.py").write_text(APP)
    command = [sys.executable, str(folder / "app.py"), server, str(port), fate]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ended(worker: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        stdout, stderr = worker.communicate(timeout=40)
    finally:
        worker.kill()
    return worker.returncode, stdout, stderr


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_with_success(broker: str, tmp_path: Path, signal_number: signal.Signals) -> None:
    worker = start(tmp_path, broker)
    assert worker.stderr is not None
    assert any(line == "ready\n" for line in worker.stderr)
    worker.send_signal(signal_number)
    code, stdout, stderr = ended(worker)
    assert (code, stdout) == (0, "")
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_signal_that_comes_while_it_starts_ends_it_too(broker: str, tmp_path: Path) -> None:
    worker = start(tmp_path, broker)
    time.sleep(2)
    worker.terminate()
    code, _, stderr = ended(worker)
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fate", "last"),
    [
        ("sentence", "The model is gone: fit one."),
        ("fault", "The worker died of an error nobody foresaw, ValueError('boom'): its log tells where."),
    ],
)
def test_a_worker_that_dies_fails_and_says_of_what(broker: str, tmp_path: Path, fate: str, last: str) -> None:
    code, stdout, stderr = ended(start(tmp_path, broker, fate=fate))
    assert (code, stdout) == (1, "")
    assert stderr.splitlines()[-1] == last


@pytest.mark.slow
def test_a_port_in_use_is_one_sentence(broker: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, stderr = ended(start(tmp_path, broker, port=taken.getsockname()[1]))
    assert code == 1
    assert stderr.splitlines()[-1].startswith("The worker's web address is in use (")


@pytest.mark.slow
def test_without_a_broker_it_fails_with_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        code, stdout, stderr = ended(start(tmp_path, f"127.0.0.1:{unused.getsockname()[1]}"))
    assert (code, stdout) == (1, "")
    assert stderr.startswith("No Kafka broker answers at")
    assert len(stderr.splitlines()) == 1
