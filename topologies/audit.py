"""The auditor: reads a topology's topics from their start and accounts for every event, asking the workers nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Fields
from stream_tpp.topologies.connection import Connection, connect
from stream_tpp.topologies.ledger import ROLES, Audit, Entry, Ledger, Role
from stream_tpp.topologies.settings import Topics
from stream_tpp.warning.rule import Rule

# An end offset may be wrong (Tansu's is, where the last batch holds several records): the end is where nothing comes.
SILENCE = 1.0

# What is read: all records, or those of transactions that were committed, and of none.
Isolation = Literal["read_uncommitted", "read_committed"]


async def audit(
    connection: Connection,
    topics: Topics,
    rules: Iterable[Rule],
    fields: Fields | None = None,
    silence: float = SILENCE,
    isolation: Isolation = "read_uncommitted",
) -> Audit:
    """The account of all that lies in the topics now. Raises BrokerUnreachable, StreamTppError for a topic that is not there."""
    ledger = Ledger(topics.events, rules, fields)
    async for entry in read(connection, topics, silence, isolation):
        ledger.take(entry)
    return ledger.audit()


async def read(
    connection: Connection, topics: Topics, silence: float = SILENCE, isolation: Isolation = "read_uncommitted"
) -> AsyncIterator[Entry]:
    """Every record of the five topics, each partition from its start to its end as of now (`silence` seconds of nothing)."""
    await (await connect(connection)).close()
    consumer = _consumer(connection, fetch_wait=0.02, isolation=isolation)
    async with consumer:
        places = await _assign(consumer, topics)
        ends = await consumer.end_offsets(list(places))
        async for entries in _batches(consumer, places, silence, ends):
            for entry in entries:
                yield entry


async def follow(connection: Connection, topics: Topics, isolation: Isolation = "read_uncommitted") -> AsyncIterator[list[Entry]]:
    """The records of the five topics from their start, in batches as they come, for ever; an empty batch now and then."""
    consumer = _consumer(connection, fetch_wait=0.05, isolation=isolation)
    async with consumer:
        places = await _assign(consumer, topics)
        async for entries in _batches(consumer, places, math.inf, {}):
            yield entries


Places = dict[TopicPartition, Role]


def _consumer(connection: Connection, fetch_wait: float, isolation: Isolation) -> AIOKafkaConsumer:
    # From the start by its reset policy and not by a seek: the consumer finds its first offsets in the background, and may
    # find them after the seek.
    return AIOKafkaConsumer(
        **connection.client_options(),
        group_id=None,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=round(1000 * fetch_wait),
    )


async def _assign(consumer: AIOKafkaConsumer, topics: Topics) -> Places:
    places: Places = {}
    # What consumer.topics() asks for; consumer.partitions_for_topic answers from metadata that may not have come yet.
    known = await consumer._client.fetch_all_metadata()
    for role in ROLES:
        name = getattr(topics, role)
        if name not in known.topics():
            raise StreamTppError(f"There is no topic {name!r} to read: name the topics as the worker has them.")
        places |= {TopicPartition(name, number): role for number in known.partitions_for_topic(name)}
    consumer.assign(list(places))
    return places


async def _batches(
    consumer: AIOKafkaConsumer, places: Places, silence: float, ends: Mapping[TopicPartition, int]
) -> AsyncIterator[list[Entry]]:
    last = asyncio.get_running_loop().time()
    while True:
        found: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(timeout_ms=100)
        now = asyncio.get_running_loop().time()
        if found:
            last = now
        elif now - last >= silence:
            positions = [(await consumer.position(place), end) for place, end in ends.items()]
            if all(position >= end for position, end in positions):
                return
        yield [
            Entry(
                places[place],
                record.partition,
                record.offset,
                record.timestamp / 1000,
                record.key,
                record.value,
                dict(record.headers),
            )
            for place, records in found.items()
            for record in records
        ]
