"""Transactions: what is written for records of a partition, and how far it is read, at once or not at all.

Each partition that is read has a producer of its own, whose name at Kafka is the partition's. Who makes it anew shuts out
whoever had it before, so two workers that both believe a partition to be theirs never both commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import faust
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from aiokafka.structs import TopicPartition
from faust.transport.drivers.aiokafka import Producer
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.post import Arrived, Letter, Post

log = logging.getLogger(__name__)

# How long (seconds) Kafka has to make a producer before it is asked anew, and a producer to end.
MADE_WITHIN = 10.0
ENDED_WITHIN = 3.0
PAUSE = 0.2


class ShutOut(StreamTppError):
    """Kafka takes no more transactions of this worker for a partition."""


@dataclass(frozen=True, eq=False)
class _Writer:
    producer: AIOKafkaProducer
    # Done when nothing it sends is wanted any more.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Transactions:
    """The producers of the partitions of `sources` (topics) that are this worker's."""

    def __init__(self, app: faust.App, post: Post, sources: Iterable[str]) -> None:
        self.app = app
        self.post = post
        self.sources = frozenset(sources)
        self._writers: dict[TP, _Writer] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def renew(self, tps: Iterable[TP]) -> None:
        """Make the producers of these partitions, which are the worker's now, and end all others.

        What any earlier one had sent is committed or aborted by then; so committed offsets are to be read after this.
        """
        self._end_all()
        tps = [tp for tp in tps if tp.topic in self.sources]
        made = await asyncio.gather(*(self._made(tp) for tp in tps))
        self._writers = dict(zip(tps, map(_Writer, made), strict=True))

    async def end(self) -> None:
        """End all producers."""
        self._end_all()
        await asyncio.gather(*self._ending)

    async def commit(self, source: TP, offset: int, letters: Sequence[Letter]) -> list[Arrived]:
        """Send letters and commit that `source` is read up to the offset, both or neither; where the letters lie.

        Raises ShutOut where nothing can be committed any more; after any other error it may be tried again.
        """
        if not self.app.in_transaction:
            raise StreamTppError(
                "The processing guarantee exactly_once holds in a Faust worker alone, and this app was started without one: "
                "run it by `faust -A ... worker`, or by stream_tpp.topologies.run."
            )
        writer = self._writers.get(source)
        if writer is None:
            raise ShutOut(f"Partition {source.partition} of {source.topic!r} is not this worker's.")
        transaction = asyncio.create_task(self._transact(writer.producer, source, offset, letters))
        over = asyncio.create_task(writer.over.wait())
        try:
            # A producer that is ended leaves unanswered what it was asked.
            await asyncio.wait({transaction, over}, return_when=asyncio.FIRST_COMPLETED)
            if not transaction.done():
                raise ShutOut(f"Partition {source.partition} of {source.topic!r} was given away.")
            return transaction.result()
        finally:
            transaction.cancel()
            over.cancel()

    async def _transact(self, producer: AIOKafkaProducer, source: TP, offset: int, letters: Sequence[Letter]) -> list[Arrived]:
        try:
            await producer.begin_transaction()
            fates = await self.post.send(letters, producer) if letters else []
            for fate in fates:
                if isinstance(fate, Exception):
                    raise fate
            await producer.send_offsets_to_transaction({TopicPartition(*source): offset}, self.app.conf.id)
            await producer.commit_transaction()
        except Exception as error:
            shut_out = isinstance(error, ProducerFenced | InvalidProducerEpoch)
            if not shut_out:
                try:
                    await producer.abort_transaction()
                except (KafkaError, AssertionError):
                    shut_out = True
            if shut_out:
                raise ShutOut(
                    f"Kafka takes no more transactions of this worker for partition {source.partition} of {source.topic!r} "
                    f"({error!r}): another worker took over, or a transaction lasted longer than Kafka allows, or none came for "
                    "longer than Kafka remembers. Nothing is lost or written twice: start the worker again."
                ) from error
            raise
        return cast(list[Arrived], fates)

    async def _made(self, tp: TP) -> AIOKafkaProducer:
        name = f"{self.app.conf.id}-{tp.topic}-{tp.partition}"
        while True:
            producer = cast(Producer, self.app.producer)._new_producer(transactional_id=name)
            try:
                async with asyncio.timeout(MADE_WITHIN):
                    await producer.start()
                return producer
            except (KafkaError, TimeoutError) as error:
                await _end(producer)
                if self.app.should_stop or (isinstance(error, KafkaError) and not error.retriable):
                    raise StreamTppError(
                        f"Kafka makes no producer with the transactional id {name!r} ({error!r}): the brokers have to support "
                        "transactions (Apache Kafka does), and to let the worker write under this id."
                    ) from error
                log.warning("Kafka does not make a producer with the transactional id %r yet: %r", name, error)
            await asyncio.sleep(PAUSE)

    def _end_all(self) -> None:
        former, self._writers = self._writers, {}
        for writer in former.values():
            writer.over.set()
            ending = asyncio.create_task(_end(writer.producer))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


async def _end(producer: AIOKafkaProducer) -> None:
    # What it still holds is not wanted, and it may hold it for as long as its broker is away.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ENDED_WITHIN):
            await producer.stop()
    await producer.client.close()
