"""The post: letters to Kafka, those to one partition together.

Faust and aiokafka send a record at a time, with a future, some callbacks and a look at the clock for each: for an event
that has three records written, more than all the rest. Here there is one future for a batch.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import faust
from aiokafka import AIOKafkaProducer
from faust.transport.drivers.aiokafka import Producer
from faust.types import TP

from stream_tpp.operators.records import LONGEST_IN_KEY

MOST_PLACES = 16_384


class Letter(NamedTuple):
    """A record for a topic: for the partition of its key, unless one is given."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


class Arrived(NamedTuple):
    """Where a letter lies now."""

    tp: TP
    offset: int


Fate = Arrived | Exception


class Post:
    """Sends letters through the producer of a Faust app, or through another one to the same brokers."""

    def __init__(self, app: faust.App) -> None:
        self.app = app
        # Hashing a key takes aiokafka as long as encoding a forecast.
        self._place_of_short = lru_cache(MOST_PLACES)(self._hashed)

    async def send(self, letters: Sequence[Letter], through: AIOKafkaProducer | None = None) -> list[Fate]:
        """What became of each, in their order. Where one of a partition fails, so do those after it: none overtakes."""
        try:
            await self.app.maybe_start_producer()
            producer = cast(Producer, self.app.producer)._ensure_producer()
            counts = {topic: len(await producer.partitions_for(topic)) for topic in {letter.topic for letter in letters}}
        except Exception as error:
            return [error] * len(letters)
        at: defaultdict[TP, list[int]] = defaultdict(list)
        for number, letter in enumerate(letters):
            at[self._place(letter, counts[letter.topic])].append(number)
        fates: list[Fate] = [LookupError("never sent")] * len(letters)
        await asyncio.gather(*(self._send_to(through or producer, tp, letters, numbers, fates) for tp, numbers in at.items()))
        return fates

    async def _send_to(
        self, producer: AIOKafkaProducer, tp: TP, letters: Sequence[Letter], numbers: list[int], fates: list[Fate]
    ) -> None:
        done = 0
        try:
            while done < len(numbers):
                batch = producer.create_batch()
                taken = done
                while taken < len(numbers):
                    _, key, value, headers, _ = letters[numbers[taken]]
                    if batch.append(timestamp=None, key=key, value=value, headers=list(headers)) is None:
                        break
                    taken += 1
                # Closed, it does not linger for more.
                batch.close()
                arrived = await (await producer.send_batch(batch, tp.topic, partition=tp.partition))
                for place, number in enumerate(numbers[done:taken]):
                    fates[number] = Arrived(tp, arrived.offset + place)
                done = taken
        except Exception as error:
            for number in numbers[done:]:
                fates[number] = error

    def _place(self, letter: Letter, partitions: int) -> TP:
        if letter.partition is not None:
            return TP(letter.topic, letter.partition)
        short = letter.key is not None and len(letter.key) <= LONGEST_IN_KEY
        return (self._place_of_short if short else self._hashed)(letter.topic, letter.key, partitions)

    def _hashed(self, topic: str, key: bytes | None, partitions: int) -> TP:
        # The number of partitions is in what is remembered, and not in the answer.
        return self.app.producer.key_partition(topic, cast(bytes, key))
