"""A worker process, started as a user starts it, and what it has done so far, as its topics tell."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_tpp.topologies.child import Child
from stream_tpp.topologies.settings import Settings

COMMAND = [sys.executable, "-c", "from stream_tpp.cli.main import main; main()", "--log-level", "info"]
READY_WITHIN = 120.0


class WorkerProcess:
    """`stream-tpp worker early_warning` with the given settings, in a process of its own."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.port = _free_port()
        self._folder = folder
        self._settings = dataclasses.replace(settings, web=dataclasses.replace(settings.web, port=self.port))
        self._child: Child | None = None

    def start(self) -> Self:
        config = self._folder / f"settings-{self.port}.toml"
        config.write_text(toml(self._settings))
        command = [*COMMAND, "worker", "early_warning", "--config", str(config)]
        self._child = Child(command, self._folder / f"worker-{self.port}.log", folder=self._folder)
        return self

    async def ready(self) -> None:
        """Wait until it says that it is ready."""
        deadline = time.monotonic() + READY_WITHIN
        while not await asyncio.to_thread(self._says_ready):
            self._still_running()
            assert time.monotonic() < deadline, f"the worker was not ready within {READY_WITHIN:.0f} s: {self.log()}"
            await asyncio.sleep(0.1)

    async def until(self, topics: dict[str, int], within: float) -> None:
        """Wait until each topic holds as many records, while the worker runs."""
        deadline = time.monotonic() + within
        while any(held < topics[topic] for topic, held in (await sizes(self._settings, list(topics))).items()):
            self._still_running()
            assert time.monotonic() < deadline, f"{await sizes(self._settings, list(topics))} of {topics}: {self.log()}"
            await asyncio.sleep(0.2)

    async def drained(self, within: float) -> None:
        """Wait until its group has committed all there is on the topics that it reads: nothing more will come of it."""
        deadline = time.monotonic() + within
        read = [self._settings.topics.events, self._settings.topics.warnings]
        while left := await behind(self._settings, read):
            self._still_running()
            assert time.monotonic() < deadline, f"{left} records not committed after {within:.0f} s: {self.log()}"
            await asyncio.sleep(0.5)

    async def counted(self, metric: str, least: int, within: float = 60.0) -> None:
        """Wait until the metric has reached so much."""
        deadline = time.monotonic() + within
        while await asyncio.to_thread(self._metric, metric) < least:
            self._still_running()
            assert time.monotonic() < deadline, f"{metric} is not {least} after {within:.0f} s: {self.log()}"
            await asyncio.sleep(0.1)

    def stop(self) -> int:
        """End it as a service manager would (SIGTERM); its exit code."""
        assert self._child is not None
        return self._child.end(within=60.0)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        assert self._child is not None
        self._child.kill()

    def log(self) -> str:
        """The end of what it wrote."""
        return "" if self._child is None else self._child.log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None and self._child.running:
            self._child.kill()

    def _still_running(self) -> None:
        assert self._child is not None
        assert self._child.running, f"the worker ended: {self.log()}"

    def _metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))

    def _says_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(json.load(answer)["ok"])
        except (OSError, urllib.error.HTTPError):
            return False


async def sizes(settings: Settings, topics: list[str]) -> dict[str, int]:
    """How many records each topic holds."""
    async with AIOKafkaConsumer(**settings.kafka.client_options()) as consumer:
        ends = await consumer.end_offsets(places_of(settings, topics))
    return {topic: sum(end for place, end in ends.items() if place.topic == topic) for topic in topics}


async def behind(settings: Settings, topics: list[str]) -> int:
    """How many records of the topics the worker's group has not committed."""
    options = settings.kafka.client_options()
    async with AIOKafkaConsumer(**options, group_id=settings.worker.application, enable_auto_commit=False) as consumer:
        ends = await consumer.end_offsets(places_of(settings, topics))
        return sum([end - (await consumer.committed(place) or 0) for place, end in ends.items()])


def places_of(settings: Settings, topics: list[str]) -> list[TopicPartition]:
    """Every partition of the topics."""
    return [TopicPartition(topic, number) for topic in topics for number in range(settings.topics.partitions)]


def toml(settings: Settings) -> str:
    """The settings as the file that a worker reads."""
    lines: list[str] = []
    for section in dataclasses.fields(settings):
        if section.name == "rules":
            continue
        lines.append(f"[{section.name}]")
        held = getattr(settings, section.name)
        for setting in dataclasses.fields(held):
            value = getattr(held, setting.name)
            if value is not None:
                lines.append(f"{setting.name} = {_literal(value)}")
    for rule in settings.rules:
        lines += ["[[rules]]", f"name = {json.dumps(rule.name)}", f"alarm = {json.dumps(sorted(rule.alarm))}"]
        lines += [f"horizon = {rule.horizon}", f"threshold = {rule.threshold}", f"clear = {rule.clears_below}"]
    return "\n".join(lines)


def _literal(value: object) -> str:
    # TOML's booleans, numbers and basic strings are written as JSON's.
    return json.dumps(str(value) if isinstance(value, Path) else value)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
