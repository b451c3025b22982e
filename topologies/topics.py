"""Topics, declared and checked before anything reads them.

Faust ignores `partitions` for topics that are not internal and lets the broker create them as it likes; the mismatch
then shows as an exception inside an agent. Here a missing topic is created as wanted, and a topic with another number
of partitions ends the start with a sentence that says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import faust
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from mode import Service

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.boot import start_first
from stream_tpp.topologies.connection import REACH_WITHIN, Connection, connect

SETTLE_WITHIN = 10.0
SETTLE_EVERY = 0.05


class WrongPartitions(StreamTppError):
    """A topic exists with another number of partitions than wanted."""


@dataclass(frozen=True)
class Topic:
    """A topic as it should be. `config` holds Kafka's topic settings, such as {"cleanup.policy": "compact"}."""

    name: str
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


async def declare(connection: Connection, topics: Iterable[Topic], within: float = REACH_WITHIN) -> list[str]:
    """Create the topics that are missing, check the partitions of those that exist; the names of those created.

    Raises BrokerUnreachable when no broker answers `within` seconds, WrongPartitions for topics with another number
    of partitions (nothing is created then), StreamTppError for a topic that the broker will not create.
    """
    wanted = {topic.name: topic for topic in topics}
    deadline = time.monotonic() + SETTLE_WITHIN
    while True:
        try:
            return await _declare(connection, wanted, within)
        except KafkaError as error:
            # A node that has just gone is asked, too, until the others have noticed.
            if not error.retriable or time.monotonic() > deadline:
                why = str(error).rstrip(".")
                raise StreamTppError(f"Kafka at {connection.bootstrap_servers} could not declare topics: {why}.") from error
        await asyncio.sleep(SETTLE_EVERY)


async def _declare(connection: Connection, wanted: Mapping[str, Topic], within: float) -> list[str]:
    client = await connect(connection, within)
    try:
        found = await _partitions(client)
        _check(wanted, found)
        missing = [topic for name, topic in wanted.items() if name not in found]
        if missing:
            await _create(client, missing)
            await _settle(client, wanted)
        return [topic.name for topic in missing]
    finally:
        await client.close()


def changelogs(app: faust.App, partitions: int, replication: int = 1) -> Iterator[Topic]:
    """The changelog topics of the app's tables, as Faust writes them: compacted, partitioned as their source topic."""
    for table in app.tables.values():
        topic = table.changelog_topic
        policy = [word for word, on in (("compact", topic.compacting), ("delete", topic.deleting)) if on]
        config = {str(key): str(value) for key, value in (topic.config or {}).items()}
        if policy:
            config["cleanup.policy"] = ",".join(policy)
        yield Topic(table.changelog_topic_name, topic.partitions or partitions, topic.replicas or replication, config)


def declare_at_start(app: faust.App, connection: Connection, topics: Callable[[], Iterable[Topic]]) -> None:
    """Have `app` declare `topics()` each time it starts, before its producer, its consumer and its tables do.

    `topics` is called at the start, when the app has all its tables. A failure ends the start of the worker.
    """
    start_first(app, _Declaration(connection, topics))


class _Declaration(Service):
    def __init__(self, connection: Connection, topics: Callable[[], Iterable[Topic]]) -> None:
        super().__init__()
        self.connection = connection
        self.topics = topics

    async def on_start(self) -> None:
        await declare(self.connection, self.topics())


async def _partitions(client: AIOKafkaAdminClient) -> dict[str, int]:
    # All topics are asked for, since a question by name makes a broker with auto-creation create the topic.
    found: list[dict[str, Any]] = await client.describe_topics()
    # A topic just created may have partitions that have no leader yet; they count.
    return {topic["topic"]: len(topic["partitions"]) for topic in found if topic["partitions"]}


def _check(wanted: Mapping[str, Topic], found: Mapping[str, int]) -> None:
    wrong = [topic for name, topic in wanted.items() if found.get(name, topic.partitions) != topic.partitions]
    if wrong:
        raise WrongPartitions(" ".join(_wrong(topic, found[topic.name]) for topic in wrong))


def _wrong(topic: Topic, found: int) -> str:
    partitions = "1 partition" if found == 1 else f"{found} partitions"
    change = "delete the topic"
    if found < topic.partitions:
        change = f"run `kafka-topics.sh --alter --topic {topic.name} --partitions {topic.partitions}`"
    return (
        f"The topic {topic.name!r} has {partitions}, {topic.partitions} wanted: set partitions = {found} under "
        f"[topics] in the settings (STREAM_TPP_TOPICS_PARTITIONS={found}), or {change}."
    )


async def _create(client: AIOKafkaAdminClient, topics: Iterable[Topic]) -> None:
    new = [NewTopic(topic.name, topic.partitions, topic.replication, topic_configs=dict(topic.config)) for topic in topics]
    answer = await client.create_topics(new, timeout_ms=int(SETTLE_WITHIN * 1000))
    for name, code, *message in answer.topic_errors:
        # Another worker that starts at the same moment may have been first; the check that follows covers its work.
        if code not in (0, TopicAlreadyExistsError.errno):
            why = (message and message[0]) or for_code(code).__name__
            raise StreamTppError(f"Kafka will not create the topic {name!r}: {why}")


async def _settle(client: AIOKafkaAdminClient, wanted: Mapping[str, Topic]) -> None:
    """Wait until the broker that answers knows every wanted topic; creation is not instant across a cluster."""
    try:
        async with asyncio.timeout(SETTLE_WITHIN):
            while missing := wanted.keys() - (found := await _partitions(client)).keys():
                await asyncio.sleep(SETTLE_EVERY)
    except TimeoutError:
        names = ", ".join(sorted(missing))
        raise StreamTppError(f"Kafka took the order for {names} but shows no such topic after {SETTLE_WITHIN:.0f} s.") from None
    _check(wanted, found)
