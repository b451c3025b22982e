"""`stream-tpp demo` ends by itself with every event accounted for; or with a sentence, and nothing of it left running."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from stream_tpp.topologies.audit import audit
from stream_tpp.topologies.settings import load
from tests.brokers.ladder import Broker

pytestmark = pytest.mark.slow

MAIN = "from stream_tpp.cli.main import main; main()"
KEYS = {
    *("events_in", "processed", "dead_lettered", "lost", "duplicated", "forecasts", "warnings", "alerts_raised", "alerts_hit"),
    *("median_lead_s", "acceptance", "events_per_target_pass", "latency_ms", "broker", "report"),
}


class Demo:
    """A demo in a process of its own, whose broker and worker work in `folder`."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STREAM_TPP_", "KAFKA_"))}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "demo", "--out", str(folder), *arguments],
            env=kept | {"TMPDIR": str(folder)} | environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_it_forecasts(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "2013" in line:
                return
        pytest.fail("the demo ended before its first forecast")

    def left(self) -> list[str]:
        """Command lines of processes that still work in its folder, after a grace of some seconds."""
        deadline = time.monotonic() + 10
        while (found := list(self._alive())) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _alive(self) -> Iterator[str]:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if str(self.folder) in f"{command} {(entry / 'cwd').readlink()}":
                    yield command
            except OSError:
                continue


@pytest.mark.timeout(900)
def test_every_event_is_accounted_for_and_the_report_is_written(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--days", "1", "--json")
    printed, progress = demo.process.communicate()
    assert demo.process.returncode == 0, progress[-2000:]
    figures = orjson.loads(printed)
    assert figures.keys() >= KEYS
    assert figures["events_in"] == figures["processed"] + figures["dead_lettered"] > 500
    assert figures["lost"] == figures["duplicated"] == figures["contradictory"] == 0
    assert figures["forecasts"] == figures["warnings"] == figures["processed"]
    assert figures["dead_lettered"] == sum(figures["dead_letter_reasons"].values()) == 11
    assert figures["alerts_hit"] <= figures["alerts_judged"] <= figures["alerts_raised"]
    assert 0 < figures["acceptance"] <= 1 < figures["events_per_target_pass"]
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
    assert figures["broker"] == "embedded"
    page = Path(figures["report"]).read_text()
    assert page.count('role="img"') == 3
    assert "replaying" in progress
    assert not demo.left()


@pytest.mark.timeout(900)
def test_on_a_broker_that_is_named_it_uses_topics_of_its_own_and_leaves_them(tmp_path: Path, broker: Broker) -> None:
    servers = broker.connection.bootstrap_servers
    demo = Demo(tmp_path, "--days", "1", "--json", KAFKA_BOOTSTRAP_SERVERS=servers)
    printed, progress = demo.process.communicate()
    assert demo.process.returncode == 0, progress[-2000:]
    figures = orjson.loads(printed)
    assert figures["broker"] == servers
    assert figures["lost"] == figures["duplicated"] == figures["contradictory"] == 0
    settings = load(tmp_path / "settings.toml", {})
    account = asyncio.run(audit(broker.connection, settings.topics, settings.rules))
    assert account.sound
    assert account.events_in == figures["events_in"]


def test_a_broker_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    demo = Demo(tmp_path, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    _, said = demo.process.communicate()
    assert demo.process.returncode == 1
    assert said.startswith("Error: No Kafka broker answers at 127.0.0.1:1")
    assert len(said.strip().splitlines()) == 1


def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    demo = Demo(tmp_path, STREAM_TPP_FORECASTS_MODEL="nowhere")
    _, said = demo.process.communicate()
    assert demo.process.returncode == 1
    assert said.startswith("Error: There is no model in nowhere")
    assert not demo.left()


def test_a_worker_that_dies_ends_the_demo_with_a_sentence_that_names_its_log(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.until_it_forecasts()
    (worker,) = [entry for entry in Path("/proc").glob("[0-9]*") if _is_worker(entry, tmp_path)]
    os.kill(int(worker.name), signal.SIGKILL)
    _, said = demo.process.communicate()
    assert demo.process.returncode == 1
    assert "Error: The worker ended in the middle of the run" in said
    assert f"Its log: {tmp_path / 'worker.log'}" in said
    assert "Traceback" not in said
    assert not demo.left()


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_is_ended_nothing_of_it_is_left(tmp_path: Path, ends: signal.Signals) -> None:
    demo = Demo(tmp_path)
    demo.until_it_forecasts()
    demo.process.send_signal(ends)
    _, said = demo.process.communicate()
    assert demo.process.returncode == (130 if ends == signal.SIGINT else -ends)
    assert "Traceback" not in said
    assert not demo.left()


def _is_worker(entry: Path, folder: Path) -> bool:
    try:
        command = (entry / "cmdline").read_bytes().decode()
    except OSError:
        return False
    return "early_warning" in command and str(folder) in command
