"""What the end-to-end tests send: real flights, and among them every kind of record that is no good event."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaProducer

from stream_tpp.event import Event
from stream_tpp.logs.flights import read_flights
from stream_tpp.topologies.connection import Connection

# The model that ships has learned from flights before this.
UNSEEN = datetime(2013, 11, 1, tzinfo=UTC).timestamp()
MONTH = 30 * 86_400.0
KINDS = 12
LARGEST = 900_000


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass(frozen=True)
class Input:
    """A record to send, and what has to come of it: a forecast and warnings of `entity`, a dead letter with `reason`, or,
    of an event told twice, nothing.
    """

    key: bytes | None
    value: bytes | None
    entity: str | None = None
    reason: str | None = None
    repeat: bool = False


def inputs(good: int, rounds: int, seed: int = 7) -> list[Input]:
    """`good` flights in order of time, `rounds` bad records of each kind strewn among their second half."""
    events = _once_each((event for event in read_flights().events if event.time >= UNSEEN), good)
    sent = [Input(event.entity.encode(), _json(event), entity=event.entity) for event in events]
    draw = random.Random(seed)
    # From the end forwards, so that what was strewn moves no place that is still to come.
    places = sorted((draw.randrange(good // 2, good) for _ in range(rounds * KINDS)), reverse=True)
    kinds = itertools.cycle(range(KINDS))
    for place, kind in zip(places, kinds, strict=False):
        sent.insert(place, _bad(kind, events[place - 1], sent[place - 1]))
    return sent


async def send(connection: Connection, topic: str, sent: Sequence[Input]) -> dict[Place, Input]:
    """Publish in order, as the producer's own partitioner spreads the keys; where each record came to lie."""
    options = connection.client_options()
    async with AIOKafkaProducer(**options, enable_idempotence=True, max_request_size=1_000_000, linger_ms=5) as producer:
        under_way = [await producer.send(topic, one.value, key=one.key) for one in sent]
        written = await asyncio.gather(*under_way)
    return {Place(where.partition, where.offset): one for where, one in zip(written, sent, strict=True)}


def _once_each(events: Iterable[Event], count: int) -> list[Event]:
    """The first `count` events that no other of theirs shares entity and id with."""
    seen: set[tuple[str, str | None]] = set()

    def unseen() -> Iterator[Event]:
        for event in events:
            if (event.entity, event.id) not in seen:
                seen.add((event.entity, event.id))
                yield event

    return list(itertools.islice(unseen(), count))


def _bad(kind: int, event: Event, before: Input) -> Input:
    """A bad record of the given kind, made of the event just before it; keyed by its entity, as a producer would."""
    entity, key = event.entity, event.entity.encode()
    whole = {"entity": entity, "time": event.time, "type": event.type, "id": f"bad-{event.id}"}
    match kind:
        case 0:
            return Input(key, b"\xff\xfe not json", reason="not_json")
        case 1:
            return Input(key, orjson.dumps(whole | {"entity": None}), reason="missing_entity")
        case 2:
            return Input(key, orjson.dumps({k: v for k, v in whole.items() if k != "time"}), reason="missing_time")
        case 3:
            return Input(key, orjson.dumps(whole).replace(b"%d" % int(event.time), b"NaN", 1), reason="not_json")
        case 4:
            return Input(key, orjson.dumps(whole | {"time": "NaN"}), reason="bad_time")
        case 5:
            return Input(key, orjson.dumps(whole | {"time": 1e300}), reason="absurd_time")
        case 6:
            return Input(key, orjson.dumps(whole | {"type": "diverted"}), reason="unknown_type")
        case 7:
            return Input(key, orjson.dumps(whole | {"note": "x" * LARGEST}), reason="too_large")
        case 8:
            return Input(key, b"", reason="empty")
        case 9:
            return Input(key, None, reason="tombstone")
        case 10:
            return Input(key, orjson.dumps(whole | {"time": event.time - MONTH}), reason="too_late")
        case _:
            return Input(before.key, _json(event), entity=entity, repeat=True)


def _json(event: Event) -> bytes:
    return orjson.dumps({"entity": event.entity, "time": event.time, "type": event.type, "id": event.id})
