"""Workers of the early-warning topology: real processes, to be killed, stopped and started by a test."""

from __future__ import annotations

import asyncio
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from faust.types.enums import ProcessingGuarantee

from stream_tpp.operators.post import Arrived, Fate, Letter, Post
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

# How often (seconds) an orchestrator looks.
PROBE_EVERY = 0.5

# How long (seconds) a worker may get nothing done before it says that it is dead; a minute in life.
STALLED_AFTER = 20.0


@dataclass(frozen=True)
class Ways:
    """What may be odd about a worker: a clock `skew` seconds ahead, how much it logs, Faust's transactions in place of ours."""

    skew: float = 0.0
    level: int = logging.INFO
    fausts_transactions: bool = False


ORDINARY = Ways()


class Worker:
    """A worker process; its log is in the file `log`.

    `said` is what its /livez has ever answered; anything but 200, and an orchestrator would restart it. `ills` are the signs
    that it then gave.
    """

    def __init__(self, settings: Settings, engine: Double, log: Path, ways: Ways) -> None:
        self.log = log
        self.replaced = False
        self.said: set[int] = set()
        self.ills: list[str] = []
        self.settings = dataclasses.replace(settings, web=Web(port=_free_port()))
        self._process: BaseProcess = context.Process(target=_work, args=(self.settings, engine, log, ways), daemon=True)
        self._process.start()
        self._over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> float:
        """End it as a crash would; the time (Unix seconds) of its death."""
        self._over.set()
        self._process.kill()
        self._process.join()
        return time.time()

    def end(self, within: float = END_WITHIN) -> int | None:
        """Ask it to end as an orchestrator would, and wait; kill it after `within` seconds. Its exit code."""
        self._over.set()
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
            said = error.read()
            return error.code, json.loads(said) if error.code == 503 else {}
        except (OSError, ValueError):
            return 0, {}

    @property
    def live(self) -> bool:
        return self.probe("/livez")[0] == 200

    @property
    def ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    def page(self, page: str) -> str:
        """What it serves there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.settings.web.port}{page}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        lines = self.page("/metrics").splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def _look(self) -> None:
        while not self._over.wait(PROBE_EVERY):
            status, signs = self.probe("/livez")
            if status:
                self.said.add(status)
                ills = {name: sign["detail"] for name, sign in signs.get("checks", {}).items() if not sign["ok"]}
                self.ills += [f"{status} {ills}"] if status != 200 else []

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
        self.engine = Double(self.mood)
        self.workers: list[Worker] = []
        self._count = 0

    def feel(self, mood: str) -> None:
        """Set the mood of all engines, see Double."""
        fresh = self.folder / "mood.fresh"
        fresh.write_text(mood)
        fresh.replace(self.mood)

    def start(self, count: int = 1, settings: Settings | None = None, ways: Ways = ORDINARY) -> list[Worker]:
        """Start workers, and wait until they and all others are ready."""
        started = [self.launch(settings, ways) for _ in range(count)]
        self.await_ready()
        return started

    def launch(self, settings: Settings | None = None, ways: Ways = ORDINARY) -> Worker:
        """Start a worker, and do not wait."""
        self._count += 1
        log = self.folder / f"worker-{self._count}.log"
        worker = Worker(settings or self.settings, self.engine, log, ways)
        self.workers.append(worker)
        return worker

    def await_ready(self) -> None:
        until(lambda: all(worker.ready for worker in self.running()), "every worker is ready", self.logs)

    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.running]

    @property
    def said_dead(self) -> list[str]:
        """The logs of those whose /livez has ever said so, and what it said."""
        return [f"{worker.log.name}: {worker.ills}" for worker in self.workers if worker.said - {200}]

    def stop(self) -> None:
        self.feel("well")
        for worker in self.workers:
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


def _work(settings: Settings, engine: Double, log: Path, ways: Ways) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    now = time.time
    time.time = lambda: now() + ways.skew
    logging.basicConfig(level=ways.level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run(lambda: _app(settings, engine, ways))


def _app(settings: Settings, engine: Double, ways: Ways) -> Any:
    app, plugged = early_warning.create(settings, engine)
    if ways.fausts_transactions:
        app.conf.processing_guarantee = ProcessingGuarantee.EXACTLY_ONCE
        for agent in (plugged.forecast_agent, plugged.alert_agent):
            agent.post = OneByOne(app)
    serve(app, Health(app, plugged, stalled_after=STALLED_AFTER), settings.web.host, settings.web.port)
    return app


class OneByOne(Post):
    """Sends as Faust does, within its transactions."""

    async def send(self, letters: Sequence[Letter]) -> list[Fate]:
        producer, under_way = await self.app.maybe_start_producer(), []
        for topic, key, value, headers, partition in letters:
            under_way.append(await producer.send(topic, key, value, partition, None, dict(headers)))
        arrived = await asyncio.gather(*under_way)
        return [Arrived(lies.topic_partition, lies.offset) for lies in arrived]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _free_port() -> int:
    with socket.socket() as claim:
        claim.bind(("127.0.0.1", 0))
        return int(claim.getsockname()[1])
