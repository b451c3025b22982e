"""Records as the operators see them: what came from a topic, what goes to one, and the names derived from where it came."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

Channel = Literal["forecasts", "warnings", "alerts", "dead_letters"]

LONGEST_IN_KEY = 64


class Source(NamedTuple):
    """Where a record lies in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record read from a topic, bytes untouched; `timestamp` is Kafka's, in seconds."""

    source: Source
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """A record to be written."""

    channel: Channel
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


def record_id(entity: str, source: Source) -> str:
    """The id of what comes of the event at `source`: made of where it lies, so that a repeat bears the same id."""
    return f"{entity}:{source.topic}:{source.partition}:{source.offset}"


def warning_id(entity: str, source: Source, rule: str) -> str:
    """The id of the warning by the rule, of the event at `source`."""
    return f"{record_id(entity, source)}:{rule}"


def seed_of(id: str) -> int:
    """The 63-bit seed of the futures simulated for the record of this id."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest()) >> 1


def entity_key(partition: int, entity: str) -> bytes:
    """How tables name an entity: its partition, then at most 64 bytes. No two entities share one.

    The partition is in the key because state belongs to a partition's order of offsets: an entity whose events are
    spread over partitions has a state in each. Names of 64 bytes and more are given by their 64-byte hash.
    """
    name = entity.encode()
    if len(name) >= LONGEST_IN_KEY:
        name = hashlib.blake2b(name, digest_size=LONGEST_IN_KEY).digest()
    return partition.to_bytes(4) + name


STANDS_FOR = "stands_for"


def stands_for_header(offsets: Iterable[int]) -> dict[str, bytes]:
    """The header that names the earlier events of an entity (by their offsets) that an output stands for, if any.

    What is conflated depends on how far behind the engine is, so it has no place in a value, which a repeat must equal.
    """
    named = ",".join(map(str, offsets))
    return {STANDS_FOR: named.encode()} if named else {}


def encode(record: Mapping[str, Any] | list[str]) -> bytes:
    """A record's JSON. Field order is the order of insertion, so that equal records are equal bytes."""
    return orjson.dumps(record)
