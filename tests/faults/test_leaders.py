"""Three nodes, of which one goes, by a crash and in order, or two at once: workers go on or wait, and nothing is lost."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from stream_tpp.topologies.connection import connect
from stream_tpp.topologies.settings import Settings
from tests.brokers.kafka import KafkaCluster, KafkaUnavailable
from tests.faults.conftest import settings_for
from tests.faults.fleet import Fleet
from tests.faults.test_broker import recovered
from tests.faults.test_exactly_once import ended_with_a_sentence
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

WITHIN = 90.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    try:
        nodes = KafkaCluster(tmp_path_factory.mktemp("three"), nodes=3)
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka of our own: {error}")
    with nodes:
        yield nodes


@pytest.fixture
def settings(three: KafkaCluster, name: str, tmp_path: Path) -> Settings:
    """Three copies of each topic, of which Kafka wants two before it takes a record."""
    return settings_for(three.connection, name, tmp_path, replication=3)


async def leader(settings: Settings, *, other_than: int = 0, in_sync: int = 2) -> int:
    """The node that leads partition 0 of the events, as soon as it is another and so many copies are in step."""
    async with asyncio.timeout(WITHIN):
        while True:
            # A node that is gone is asked, too, until the others have noticed.
            with contextlib.suppress(KafkaError):
                partitions = await described(settings)
                (led,) = [partition["leader"] for partition in partitions if partition["partition"] == 0]
                if led not in (-1, other_than) and all(len(partition["isr"]) >= in_sync for partition in partitions):
                    return int(led)
            await asyncio.sleep(0.2)


async def described(settings: Settings) -> list[dict[str, Any]]:
    client = await connect(settings.kafka, WITHIN)
    try:
        (topic,) = await client.describe_topics([settings.topics.events])
    finally:
        await client.close()
    return list(topic["partitions"])


async def coordinator(settings: Settings) -> int:
    """The node that keeps the workers' group."""
    client = await connect(settings.kafka, WITHIN)
    try:
        return int(await client.find_coordinator(settings.worker.application))
    finally:
        await client.close()


async def test_the_leader_of_the_events_goes_and_workers_go_on(
    fleet: Fleet, traffic: Traffic, settings: Settings, three: KafkaCluster, soak: bool
) -> None:
    fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    faults = [three.kill_node, three.stop_node] * 3 if soak else [three.kill_node]
    for go in faults:
        led = await leader(settings, in_sync=3)
        await asyncio.to_thread(go, led)
        # One that starts meanwhile waits, too.
        fleet.launch()
        await leader(settings, other_than=led)
        await asyncio.to_thread(fleet.await_ready)
        await asyncio.sleep(1)
        three.start_node(led)
        await asyncio.to_thread(three.await_nodes, 3)
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert all(worker.running for worker in fleet.workers), fleet.logs()
    print(f"{len(faults)} leaders gone, {account.events_in} events, {account.duplicated} repeated records")


async def test_exactly_once_the_leader_of_the_events_goes_and_nothing_is_repeated(
    fleet: Fleet, traffic: Traffic, settings: Settings, three: KafkaCluster, soak: bool
) -> None:
    fleet.settings = dataclasses.replace(
        settings, worker=dataclasses.replace(settings.worker, processing_guarantee="exactly_once")
    )
    fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    faults = [three.kill_node, three.stop_node] * 3 if soak else [three.kill_node]
    died = 0
    for go in faults:
        led = await leader(settings, in_sync=3)
        await asyncio.to_thread(go, led)
        fleet.launch()
        await leader(settings, other_than=led)
        died += await recovered(fleet)
        await asyncio.sleep(1)
        three.start_node(led)
        await asyncio.to_thread(three.await_nodes, 3)
    died += await recovered(fleet)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs, isolation="read_committed")
    print(
        f"{len(faults)} leaders gone, {account.events_in} events, {account.duplicated} repeated records, {died} workers replaced"
    )
    assert account.duplicated == 0
    assert ended_with_a_sentence(fleet)


@pytest.mark.parametrize("left", ["coordinator", "another"])
async def test_two_of_three_nodes_are_gone_for_a_while_and_workers_wait(
    fleet: Fleet, traffic: Traffic, settings: Settings, three: KafkaCluster, soak: bool, left: str
) -> None:
    """The one that is left takes no record, since Kafka wants two copies of each, and the cluster has no controller."""
    fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    await leader(settings, in_sync=3)
    coordinates = await coordinator(settings)
    kept = coordinates if left == "coordinator" else next(number for number in three.numbers if number != coordinates)
    gone = [number for number in three.numbers if number != kept]
    for number in gone:
        three.kill_node(number)
    await asyncio.sleep(30 if soak else 12)
    # A restart would not help them, and they get nothing done.
    assert await asyncio.to_thread(lambda: [(worker.live, worker.ready) for worker in fleet.workers]) == [(True, False)] * 2
    for number in gone:
        three.start_node(number)
    await asyncio.to_thread(three.await_nodes, 3)
    await asyncio.to_thread(fleet.await_ready)
    await asyncio.sleep(2)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert all(worker.running for worker in fleet.workers), fleet.logs()
    print(f"{account.events_in} events, {account.duplicated} repeated records")
