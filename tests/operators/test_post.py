"""Letters lie where Kafka's own way would put them, in their order, on the broker that the tests run against."""

from __future__ import annotations

from collections.abc import AsyncIterator

import faust
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream_tpp.operators.post import Arrived, Letter, Post
from stream_tpp.topologies.topics import Topic, declare
from tests.brokers.ladder import Broker

pytestmark = pytest.mark.slow

PARTITIONS = 3


@pytest.fixture
async def post(broker: Broker, name: str) -> AsyncIterator[Post]:
    await declare(broker.connection, [Topic(name, PARTITIONS)])
    app = faust.App(name, autodiscover=False, **broker.connection.faust_options())
    yield Post(app)
    await app.producer.stop()


async def lie(broker: Broker, topic: str, letters: int) -> list[tuple[int, int, bytes | None, bytes | None, tuple[object, ...]]]:
    """Partition, offset, key, value and headers of as many records of the topic, by partition."""
    found = []
    async with AIOKafkaConsumer(topic, **broker.connection.client_options(), auto_offset_reset="earliest") as consumer:
        while len(found) < letters:
            record = await consumer.getone()
            found.append((record.partition, record.offset, record.key, record.value, record.headers))
    return sorted(found, key=lambda record: record[:2])


async def test_letters_arrive_in_order_in_the_partition_of_their_key_and_say_where(post: Post, broker: Broker, name: str) -> None:
    # More than a batch holds.
    letters = [Letter(name, b"entity-%d" % (number % 7), b"%05d" % number * 100, (("of", b"x"),)) for number in range(400)]
    letters += [Letter(name, b"slot", b"here", partition=2), Letter(name, b"k" * 100, b"long")]
    fates = await post.send(letters)
    expected = []
    async with AIOKafkaProducer(**broker.connection.client_options()) as producer:
        await producer.partitions_for(name)
        for letter, fate in zip(letters, fates, strict=True):
            by_key = producer._partition(name, letter.partition, None, None, letter.key, None)
            assert isinstance(fate, Arrived)
            assert fate.tp == (name, by_key)
            expected.append((by_key, fate.offset, letter.key, letter.value, letter.headers))
    assert [place[:2] for place in sorted(expected)] == [place[:2] for place in sorted(set(expected))]
    assert await lie(broker, name, len(letters)) == sorted(expected, key=lambda record: record[:2])
    for partition in range(PARTITIONS):
        in_turn = [offset for to, offset, *_ in expected if to == partition]
        assert in_turn == sorted(in_turn)


async def test_a_letter_that_is_refused_lets_none_of_its_partition_overtake_it(post: Post, broker: Broker, name: str) -> None:
    letters = [Letter(name, b"k", b"before", partition=0), Letter(name, b"k", b"x" * (4 << 20), partition=0)]
    letters += [Letter(name, b"k", b"after", partition=0), Letter(name, b"k", b"elsewhere", partition=1)]
    before, refused, after, elsewhere = await post.send(letters)
    assert isinstance(before, Arrived)
    assert isinstance(elsewhere, Arrived)
    assert isinstance(refused, Exception)
    assert isinstance(after, Exception)
    assert [value for _, _, _, value, _ in await lie(broker, name, 2)] == [b"before", b"elsewhere"]


async def test_nothing_arrives_where_there_is_no_broker() -> None:
    app = faust.App("nowhere", autodiscover=False, broker="kafka://127.0.0.1:1")
    fates = await Post(app).send([Letter("t", b"k", b"v")] * 2)
    assert all(isinstance(fate, Exception) for fate in fates)
