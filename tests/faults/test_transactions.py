"""What Kafka makes of the transactions: all of one or nothing, and none of whoever was shut out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import faust
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.post import Letter, Post
from stream_tpp.operators.transactions import ShutOut, Transactions
from stream_tpp.topologies.topics import Topic, declare
from tests.faults.conftest import FaultyKafka

pytestmark = pytest.mark.slow


class Place:
    """A topic of events, another that is written, and an application that reads the one and writes the other."""

    def __init__(self, kafka: FaultyKafka, name: str) -> None:
        self.connection, self.name = kafka.connection, name
        self.events, self.out = f"{name}-events", f"{name}-out"
        self.first, self.second = TP(self.events, 0), TP(self.events, 1)

    @asynccontextmanager
    async def worker(self, in_worker: bool = True) -> AsyncIterator[Transactions]:
        options = self.connection.faust_options()
        app = faust.App(self.name, autodiscover=False, processing_guarantee="exactly_once", **options)
        app.in_worker = in_worker
        transactions = Transactions(app, Post(app), {self.events})
        await app.producer.start()
        try:
            yield transactions
        finally:
            await transactions.end()
            await app.producer.stop()

    def letter(self, value: bytes, partition: int = 0) -> Letter:
        return Letter(self.out, b"key", value, partition=partition)

    async def seen(self) -> tuple[list[bytes], list[int | None]]:
        """What readers of committed records see, and the committed offset of each partition of the events."""
        options = self.connection.client_options()
        async with AIOKafkaConsumer(
            **options, group_id=self.name, isolation_level="read_committed", enable_auto_commit=False
        ) as reader:
            values = []
            for partition in range(2):
                place = TopicPartition(self.out, partition)
                reader.assign([place])
                await reader.seek_to_beginning(place)
                end = (await reader.end_offsets([place]))[place]
                while await reader.position(place) < end:
                    values += [record.value for record in (await reader.getmany(place, timeout_ms=100)).get(place, ())]
            return values, [await reader.committed(TopicPartition(self.events, number)) for number in range(2)]


@pytest.fixture
async def place(own_kafka: FaultyKafka, name: str) -> Place:
    place = Place(own_kafka, name)
    await declare(place.connection, [Topic(place.events, 2), Topic(place.out, 2)])
    return place


async def test_letters_and_the_offset_are_seen_at_once(place: Place) -> None:
    async with place.worker() as worker:
        await worker.renew([place.first, place.second, TP("another", 0)])
        arrived = await worker.commit(place.first, 3, [place.letter(b"a"), place.letter(b"b", 1)])
        assert [(each.tp.partition, each.offset) for each in arrived] == [(0, 0), (1, 0)]
        assert await worker.commit(place.second, 9, []) == []
        assert await place.seen() == ([b"a", b"b"], [3, 9])


async def test_of_a_transaction_that_fails_nothing_is_seen(place: Place) -> None:
    async with place.worker() as worker:
        await worker.renew([place.first])
        with pytest.raises(Exception, match=r"(?i)large"):
            await worker.commit(place.first, 3, [place.letter(b"a"), place.letter(b"x" * (4 << 20), 1)])
        assert await place.seen() == ([], [None, None])
        await worker.commit(place.first, 3, [place.letter(b"a")])
        assert await place.seen() == ([b"a"], [3, None])


async def test_who_makes_the_producer_anew_shuts_out_whoever_had_it(place: Place) -> None:
    async with AsyncExitStack() as workers:
        former, successor = [await workers.enter_async_context(place.worker()) for _ in range(2)]
        await former.renew([place.first])
        await former.commit(place.first, 1, [place.letter(b"a")])
        # One that it has begun, and of which a letter lies there.
        begun = former._writers[place.first].producer
        await begun.begin_transaction()
        await former.post.send([place.letter(b"begun")], begun)
        await successor.renew([place.first])
        assert await place.seen() == ([b"a"], [1, None])
        await successor.commit(place.first, 2, [place.letter(b"b")])
        with pytest.raises(ShutOut, match=r"Kafka takes no more transactions of this worker .* start the worker again"):
            await former.commit(place.first, 2, [place.letter(b"late")])
        assert await place.seen() == ([b"a", b"b"], [2, None])


async def test_a_worker_s_own_next_assignment_shuts_out_its_last(place: Place) -> None:
    async with place.worker() as worker:
        await worker.renew([place.first, place.second])
        former = worker._writers[place.first].producer
        await former.begin_transaction()
        await worker.post.send([place.letter(b"begun")], former)
        await worker.renew([place.first])
        await worker.commit(place.first, 1, [place.letter(b"a")])
        with pytest.raises(ShutOut, match="not this worker's"):
            await worker.commit(place.second, 1, [])
        assert await place.seen() == ([b"a"], [1, None])


async def test_an_app_without_a_worker_is_told_so(place: Place) -> None:
    async with place.worker(in_worker=False) as transactions:
        with pytest.raises(StreamTppError, match="in a Faust worker alone"):
            await transactions.commit(place.first, 1, [])
