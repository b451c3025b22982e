"""Workers of the early-warning topology: real processes, to be killed, stopped and started by a test."""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from stream_tpp.topologies import early_warning
from stream_tpp.topologies.health import Health
from stream_tpp.topologies.run import run
from stream_tpp.topologies.settings import Settings, Web
from stream_tpp.topologies.web import serve
from tests.faults.engine import Double

# A process that has imported all that a worker needs, and of which workers are forked: the import alone takes seconds.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.faults.fleet"])

END_WITHIN = 20.0
WITHIN = 60.0

# How long (seconds) a worker may get nothing done before it says that it is dead; a minute in life.
STALLED_AFTER = 20.0


class Worker:
    """A worker process; its log is in the file `log`, its clock `skew` seconds ahead."""

    def __init__(self, settings: Settings, engine: Double, log: Path, skew: float = 0.0) -> None:
        self.log = log
        self.replaced = False
        self.settings = dataclasses.replace(settings, web=Web(port=_free_port()))
        self._process: BaseProcess = context.Process(target=_work, args=(self.settings, engine, log, skew), daemon=True)
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> float:
        """End it as a crash would; the time (Unix seconds) of its death."""
        self._process.kill()
        self._process.join()
        return time.time()

    def end(self, within: float = END_WITHIN) -> int | None:
        """Ask it to end as an orchestrator would, and wait; kill it after `within` seconds. Its exit code."""
        self._process.terminate()
        self._process.join(within)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._process.exitcode

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def probe(self, page: str) -> tuple[int, dict[str, Any]]:
        """The status and the signs on /livez or /readyz; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.settings.web.port}{page}", timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, ValueError):
            return 0, {}

    @property
    def live(self) -> bool:
        return self.probe("/livez")[0] == 200

    @property
    def ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.settings.web.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


class Fleet:
    """The workers of one application, all with the same settings and the same engine."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.mood = folder / "mood"
        self.feel("well")
        self.workers: list[Worker] = []
        self._count = 0

    def feel(self, mood: str) -> None:
        """Set the mood of all engines, see Double."""
        fresh = self.folder / "mood.fresh"
        fresh.write_text(mood)
        fresh.replace(self.mood)

    def start(self, count: int = 1, settings: Settings | None = None) -> list[Worker]:
        """Start workers, and wait until they and all others are ready."""
        started = [self.launch(settings) for _ in range(count)]
        self.await_ready()
        return started

    def launch(self, settings: Settings | None = None, skew: float = 0.0) -> Worker:
        """Start a worker, and do not wait."""
        self._count += 1
        worker = Worker(settings or self.settings, Double(self.mood), self.folder / f"worker-{self._count}.log", skew)
        self.workers.append(worker)
        return worker

    def await_ready(self) -> None:
        until(lambda: all(worker.ready for worker in self.running()), "every worker is ready", self.logs)

    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.running]

    def stop(self) -> None:
        self.feel("well")
        for worker in self.running():
            worker.kill()

    def logs(self) -> str:
        """The end of every worker's log, for the message of a failed test."""
        return "\n".join(f"--- {worker.log.name}\n{worker.log.read_text()[-1500:]}" for worker in self.workers)


def until(condition: Callable[[], bool], what: str, told: Callable[[], str] = str, within: float = WITHIN) -> None:
    """Wait for the condition. Raises AssertionError with what was `told` after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"after {within:.0f} s it is still not so that {what}\n{told()}"
        time.sleep(0.1)


def _work(settings: Settings, engine: Double, log: Path, skew: float) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    now = time.time
    time.time = lambda: now() + skew
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run(lambda: _app(settings, engine))


def _app(settings: Settings, engine: Double) -> Any:
    app, plugged = early_warning.create(settings, engine)
    serve(app, Health(app, plugged, stalled_after=STALLED_AFTER), settings.web.host, settings.web.port)
    return app


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _free_port() -> int:
    with socket.socket() as claim:
        claim.bind(("127.0.0.1", 0))
        return int(claim.getsockname()[1])
