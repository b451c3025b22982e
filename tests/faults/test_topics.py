"""What happens to the topics behind the workers' back."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

from stream_tpp.topologies import early_warning
from stream_tpp.topologies.connection import Connection, connect
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.topics import Topic, changelogs, declare
from tests.faults.engine import Double
from tests.faults.fleet import Fleet, until
from tests.faults.traffic import Traffic, committed, records, verdict

pytestmark = pytest.mark.slow

# Segments so short, and so soon compacted, that only the latest record of a key is left while the test runs.
EAGER = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500"}

# What an operator who saves disk sets: Kafka may then delete records that are the latest of their key.
RETAINED = {"cleanup.policy": "compact,delete"}

EMPTIED = (0, 1)


def changelogs_of(settings: Settings, fleet: Fleet) -> list[Topic]:
    app, _ = early_warning.create(settings, Double(fleet.mood))
    return list(changelogs(app, settings.topics.partitions))


async def test_a_compacted_changelog_gives_back_every_history(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    topics = changelogs_of(settings, fleet)
    await declare(settings.kafka, [Topic(topic.name, topic.partitions, 1, EAGER) for topic in topics])
    fleet.start()
    traffic.rate = 400
    traffic.flow(lambda random: f"entity-{random.randrange(2)}")
    (changelog,) = [topic.name for topic in topics if "histories" in topic.name]
    # What compaction may leave: each slot's latest record, and the segment that is being written.
    slots = 2 * (settings.histories.window + settings.histories.reorder + settings.histories.slack)
    held = 0
    async with asyncio.timeout(90):
        while traffic.sent < 2 * slots or held > 0.75 * traffic.sent:
            await asyncio.sleep(1)
            held = len([record async for record in records(settings.kafka, changelog)])
    fleet.running()[0].kill()
    fleet.start()
    await asyncio.sleep(1)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {held} slots left in the changelog, {account.duplicated} repeated records")


async def test_more_partitions_under_a_running_worker_end_it_with_a_sentence(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    (worker,) = fleet.start()
    traffic.flow()
    client = AIOKafkaAdminClient(**settings.kafka.client_options())
    await client.start()
    await client.create_partitions({settings.topics.events: NewPartitions(6)})
    await client.close()
    await asyncio.sleep(1)
    await traffic.pause()
    assert await asyncio.to_thread(worker.end) == 0
    successor = fleet.launch()
    await asyncio.to_thread(until, lambda: not successor.running, "the successor ends", fleet.logs)
    assert successor.exit_code == 1
    assert f"The topic {settings.topics.events!r} has 6 partitions, 4 wanted" in successor.log.read_text()


async def test_a_changelog_emptied_by_retention_begins_its_histories_anew(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    """Those of two partitions of four. Nothing waits for the records that are gone, and the others' histories are whole."""
    topics = changelogs_of(settings, fleet)
    await declare(settings.kafka, [Topic(topic.name, topic.partitions, 1, RETAINED) for topic in topics])
    (worker,) = fleet.start()
    traffic.rate = 400
    traffic.flow()
    await asyncio.sleep(3)
    await traffic.pause()
    # All is done, and committed at the end: what is read again would see another history than the first time.
    await verdict(settings, traffic.sent, fleet.logs)
    assert await asyncio.to_thread(worker.end) == 0
    handled = await committed(settings)
    (changelog,) = [topic.name for topic in topics if "histories" in topic.name]
    await empty(settings.kafka, changelog, EMPTIED)
    (successor,) = fleet.start()
    traffic.flow()
    await asyncio.sleep(3)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert successor.live
    arrived, seen = await arrivals(settings, handled), await first_lengths(settings, handled)
    for (partition, offset), length in seen.items():
        assert length == (arrived[partition, offset] if partition in EMPTIED else settings.histories.window)
    assert {partition for partition, _ in seen} == set(range(settings.topics.partitions))
    for partition in EMPTIED:
        assert f"Partition {partition} of the changelog {changelog!r} is empty" in successor.log.read_text()
    print(f"{account.events_in} events, {account.duplicated} repeated records")


async def empty(connection: Connection, topic: str, partitions: Iterable[int]) -> None:
    """Have Kafka delete all records of the partitions, as retention does."""
    client = await connect(connection)
    try:
        await client.delete_records({TopicPartition(topic, number): RecordsToDelete(-1) for number in partitions})
    finally:
        await client.close()


async def arrivals(settings: Settings, since: Mapping[int, int]) -> dict[tuple[int, int], int]:
    """For each event at or after the offset of its partition: how many of its entity have come from there up to it."""
    counts: Counter[tuple[int, str]] = Counter()
    arrived: dict[tuple[int, int], int] = {}
    async for record in records(settings.kafka, settings.topics.events):
        if record.offset >= since[record.partition]:
            entity = record.partition, orjson.loads(record.value)["entity"]
            counts[entity] += 1
            arrived[record.partition, record.offset] = counts[entity]
    return arrived


async def first_lengths(settings: Settings, since: Mapping[int, int]) -> dict[tuple[int, int], float]:
    """The first event of each entity, at or after the offset of its partition, that has a forecast; how long its history was."""
    first: dict[tuple[int, str], tuple[int, float]] = {}
    async for record in records(settings.kafka, settings.topics.forecasts):
        forecast = orjson.loads(record.value)
        partition, offset = forecast["source"]["partition"], forecast["source"]["offset"]
        if offset >= since[partition]:
            found = offset, forecast["counts"]["bad"]["mean"]
            first[partition, forecast["entity"]] = min(found, first.get((partition, forecast["entity"]), found))
    return {(partition, offset): length for (partition, _), (offset, length) in first.items()}
