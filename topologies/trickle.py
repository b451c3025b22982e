"""Records of whatever bytes, written one by one over a while: broken ones among the good ones, for demonstrations and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.connection import Connection

Pair = tuple[bytes | None, bytes | None]


async def trickle(pairs: Sequence[Pair], topic: str, connection: Connection, seconds: float) -> None:
    """Write keys and values as they are, spread over so many seconds. Raises StreamTppError where Kafka takes one not."""
    try:
        async with AIOKafkaProducer(**connection.client_options(), acks="all") as producer:
            for key, value in pairs:
                await asyncio.sleep(seconds / (len(pairs) + 1))
                await producer.send_and_wait(topic, value, key)
    except KafkaError as error:
        raise StreamTppError(
            f"Kafka at {connection.bootstrap_servers} did not take a record for {topic!r} ({error!r}): see to the broker."
        ) from error
