"""What happens to the topics behind the workers' back."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from stream_tpp.topologies import early_warning
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.topics import Topic, changelogs, declare
from tests.faults.engine import Double
from tests.faults.fleet import Fleet, until
from tests.faults.traffic import Traffic, records, verdict

pytestmark = pytest.mark.slow

# Segments so short, and so soon compacted, that only the latest record of a key is left while the test runs.
EAGER = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500"}


def changelogs_of(settings: Settings, fleet: Fleet) -> list[Topic]:
    app, _ = early_warning.create(settings, Double(fleet.mood))
    return list(changelogs(app, settings.topics.partitions))


async def test_a_compacted_changelog_gives_back_every_history(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    topics = changelogs_of(settings, fleet)
    await declare(settings.kafka, [Topic(topic.name, topic.partitions, 1, EAGER) for topic in topics])
    fleet.start()
    traffic.rate = 400
    traffic.flow(lambda random: f"entity-{random.randrange(4)}")
    (changelog,) = [topic.name for topic in topics if "histories" in topic.name]
    held = 0
    for _ in range(20):
        await asyncio.sleep(1)
        held = len([record async for record in records(settings.kafka, changelog)])
        if held < traffic.sent / 2:
            break
    assert held < traffic.sent / 2, "Kafka did not compact"
    fleet.running()[0].kill()
    fleet.start()
    await asyncio.sleep(1)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
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
