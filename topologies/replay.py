"""A log, published to a topic in the order of its events, as fast as Kafka takes it or at the log's own pace."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.topics import Topic, WrongPartitions, declare

IN_FLIGHT = 4096
DELIVERED_WITHIN = 15.0


@dataclass(frozen=True)
class Published:
    """How many events Kafka has acknowledged, and the seconds that took."""

    events: int
    seconds: float


async def publish(
    events: Iterable[Event],
    topic: str,
    connection: Connection,
    speed: float = math.inf,
    partitions: int = 4,
    on_progress: Callable[[int], None] | None = None,
) -> Published:
    """Publish events by time, each keyed by its entity and stamped with the wall clock.

    `speed` is how many seconds of the log pass in one of ours (inf: no waiting). A topic that is missing is made with
    `partitions`; one that exists is taken as it is. `on_progress` hears how many events are acknowledged so far.

    An entity's events reach its partition in order: the producer has one batch at a time on its way to a partition. A record
    is sent again when its acknowledgement is lost, so it may be there twice: idempotence would cure that, and the embedded
    broker has none. Raises StreamTppError when no broker answers, or when Kafka does not take an event.
    """
    if not speed > 0:
        raise StreamTppError(f"The speed is {speed}: it must be above 0.")
    ordered = sorted(events, key=attrgetter("time"))
    with suppress(WrongPartitions):  # it exists, and any number of partitions will do
        await declare(connection, [Topic(topic, partitions)])
    producer = AIOKafkaProducer(
        **connection.client_options(),
        acks="all",
        enable_idempotence=False,
        linger_ms=5,
        max_batch_size=1 << 17,
        request_timeout_ms=int(DELIVERED_WITHIN * 1000),
    )
    try:
        await producer.start()
        started = time.monotonic()
        await _publish(producer, ordered, topic, speed, on_progress or (lambda done: None))
    except KafkaError as error:
        raise StreamTppError(
            f"Kafka at {connection.bootstrap_servers} did not take an event for {topic!r} ({error!r}): "
            "see to the broker, then publish the log again."
        ) from error
    finally:
        await producer.stop()
    return Published(len(ordered), time.monotonic() - started)


async def _publish(
    producer: AIOKafkaProducer, ordered: list[Event], topic: str, speed: float, on_progress: Callable[[int], None]
) -> None:
    in_flight: deque[asyncio.Future[Any]] = deque()
    delivered = 0
    clock = asyncio.get_running_loop().time
    started = clock()
    try:
        for event in ordered:
            if speed < math.inf:
                await asyncio.sleep(started + (event.time - ordered[0].time) / speed - clock())
            in_flight.append(await _send(producer, topic, event))
            while in_flight and (in_flight[0].done() or len(in_flight) >= IN_FLIGHT):
                await in_flight.popleft()
                delivered += 1
            on_progress(delivered)
        while in_flight:
            await in_flight.popleft()
            delivered += 1
            on_progress(delivered)
    finally:
        # After a failure: the rest has failed with it, or is not waited for.
        for future in in_flight:
            future.cancel()


async def _send(producer: AIOKafkaProducer, topic: str, event: Event) -> asyncio.Future[Any]:
    record = {"entity": event.entity, "time": event.time, "type": event.type}
    if event.id is not None:
        record["id"] = event.id
    future: asyncio.Future[Any] = await producer.send(
        topic, orjson.dumps(record), key=event.entity.encode(), timestamp_ms=int(time.time() * 1000)
    )
    return future
