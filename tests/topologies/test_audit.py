"""The auditor reads all there is on a broker, from the start to the end."""

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.audit import audit
from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Topics
from stream_tpp.topologies.topics import Topic, declare

TOPICS = Topics(events="e", forecasts="f", warnings="w", alerts="a", dead_letters="d", partitions=2)


async def write(connection: Connection, events: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap_servers) as producer:
        for number in range(events):
            entity = f"entity-{number % 7}"
            value = orjson.dumps({"entity": entity, "time": number, "type": "tick"})
            sent = await producer.send_and_wait("e", value, entity.encode())
            source = {"topic": "e", "partition": sent.partition, "offset": sent.offset}
            id = f"{entity}:e:{sent.partition}:{sent.offset}"
            # Not awaited one by one: the last batches hold several records, and some end offsets are wrong then.
            await producer.send("f", orjson.dumps({"id": id, "entity": entity, "source": source}), entity.encode())


async def test_every_record_is_read_from_start_to_end_again_and_again() -> None:
    with EmbeddedBroker() as broker:
        connection = Connection(broker.bootstrap_servers)
        await declare(connection, [Topic(name, 2) for name in ("e", "f", "w", "a", "d")])
        await write(connection, 300)
        for _ in range(2):
            account = await audit(connection, TOPICS, (), silence=0.3)
            assert account.sound, account.faults
            assert account.events_in == account.processed == 300


async def test_a_topic_that_is_not_there_is_one_sentence() -> None:
    with EmbeddedBroker() as broker:
        connection = Connection(broker.bootstrap_servers)
        await declare(connection, [Topic("e", 2)])
        with pytest.raises(StreamTppError, match="There is no topic 'f'"):
            await audit(connection, TOPICS, ())
