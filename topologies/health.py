"""Whether a worker lives and is ready, from its parts: Faust's own page says OK while its agents are dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery

from stream_tpp.topologies.plug import Plugged
from stream_tpp.topologies.transport import known_position, silence

STALLED_AFTER = 60.0
ANSWER_WITHIN = 2.0


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at; `detail` says in words what was found."""

    name: str
    well: bool
    detail: str


@dataclass(frozen=True)
class Partition:
    """A partition of the events topic that this worker has; offsets are None where they are not known yet."""

    number: int
    position: int | None
    committed: int | None
    end: int | None

    @property
    def unread(self) -> int:
        """Records that lie beyond what the consumer has fetched."""
        return max((self.end or 0) - (self.position or 0), 0) if self.position is not None else 0

    @property
    def lag(self) -> int:
        """Records whose outputs are not known to be delivered."""
        return max((self.end or 0) - (self.committed or self.position or 0), 0)


class Health:
    """The signs of life and of readiness of a worker with a plugged app.

    Live: its agents run, its sampler thread runs, its consumer answers, and events that wait are being worked on (some
    progress within `stalled_after` seconds). Ready: live, it is in its group, its tables are recovered, and the broker takes
    what it writes. A worker that is starting, recovering, cut off from its broker, or whose broker takes nothing (for too few
    of its nodes are there) is live and not ready.
    """

    def __init__(
        self,
        app: faust.App,
        plugged: Plugged,
        *,
        stalled_after: float = STALLED_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self.plugged = plugged
        self.stalled_after = stalled_after
        self._clock = clock
        self._progress = -1
        self._progress_at = clock()

    async def live(self) -> list[Sign]:
        """What a liveness probe looks at."""
        return [*self._agents(), *self._sampler(), await self._consumer()]

    async def ready(self) -> list[Sign]:
        """What a readiness probe looks at."""
        return [*await self.live(), self._group(), self._tables(), self._deliveries()]

    async def partitions(self) -> list[Partition]:
        """The partitions of the events topic that this worker has. Raises TimeoutError when the consumer is stuck."""
        consumer, monitor = self.app.consumer, self.app.monitor
        if not consumer.started:
            return []
        topic = self.plugged.events.get_topic_name()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return [
                    Partition(
                        tp.partition,
                        await known_position(self.app, tp),
                        monitor.tp_committed_offsets.get(tp),
                        consumer.highwater(tp),
                    )
                    for tp in sorted(consumer.assignment())
                    if tp.topic == topic
                ]
        except (ConsumerNotStarted, KafkaError, AssertionError):
            # It is starting, ending, or being assigned anew: aiokafka asserts that a partition is assigned still.
            return []
        except RuntimeError as error:
            # Its thread has ended, event loop and all.
            if self.app.should_stop:
                return []
            raise TimeoutError from error

    @property
    def in_flight(self) -> int:
        """Events that were read and whose outputs are not delivered yet."""
        return len(self.plugged.forecast_agent.outbox)

    def _agents(self) -> Iterator[Sign]:
        for name, agent in self.app.agents.items():
            # An agent that has not been started yet is not dead, and one that Faust restarted has another task.
            tasks = [actor.actor_task for actor in getattr(agent, "_actors", ())]
            dead = getattr(agent, "started", False) and not any(task is not None and not task.done() for task in tasks)
            yield Sign(f"agent {name}", not dead, "dead" if dead else "runs")

    def _sampler(self) -> Iterator[Sign]:
        # The agent starts its sampler; while the agent is dead there is one fault to report, not two.
        alive = self.plugged.forecast_agent.sampler.alive
        begun = self.plugged.counters.last_event_at is not None or self._is_ready()
        yield Sign("sampler", alive or not begun, "runs" if alive else "dead" if begun else "not started yet")

    async def _consumer(self) -> Sign:
        try:
            partitions = await self.partitions()
        except TimeoutError:
            return Sign("consumer", False, f"has not answered within {ANSWER_WITHIN:.0f} s")
        waiting = self.in_flight + sum(partition.unread for partition in partitions)
        idle = self._idle()
        if waiting and self._is_ready() and idle >= self.stalled_after:
            return Sign("consumer", False, f"{waiting} events wait and none was worked on for {idle:.0f} s")
        return Sign("consumer", True, f"{waiting} events wait")

    def _idle(self) -> float:
        """Seconds without progress, as far as was looked at."""
        counters = self.plugged.counters
        progress = counters.events_in + counters.processed + counters.dead_lettered.total() + counters.dropped
        if progress != self._progress or not self._is_ready():
            self._progress, self._progress_at = progress, self._clock()
        return self._clock() - self._progress_at

    def _is_ready(self) -> bool:
        return self._group().well and self._tables().well and self._deliveries().well

    @property
    def _recovery(self) -> Recovery:
        return cast(TableManager, self.app.tables).recovery

    def _group(self) -> Sign:
        # The first recovery follows the first assignment, so a worker that has recovered once has joined.
        joined = self._recovery.completed.is_set()
        if not joined or self.app.rebalancing:
            return Sign("group", False, "rebalancing" if joined else "not joined yet")
        silent = silence(self.app)
        # By then the group has given its partitions to others, if there is a group.
        if silent > self.app.conf.broker_session_timeout:
            return Sign("group", False, f"the broker has not answered for {silent:.0f} s")
        return Sign("group", True, "joined")

    def _tables(self) -> Sign:
        recovered = self._recovery.completed.is_set() and not self.app.in_recovery
        return Sign("tables", recovered, "recovered" if recovered else "recovering")

    def _deliveries(self) -> Sign:
        agents = self.plugged.forecast_agent, self.plugged.alert_agent
        waits = max(agent.outbox.waits for agent in agents if agent is not None)
        # A group's coordinator may answer while no record is taken: too few copies are in step.
        if waits > self.app.conf.broker_session_timeout:
            return Sign("deliveries", False, f"the broker has not taken what was sent for {waits:.0f} s")
        return Sign("deliveries", True, "arrive")
