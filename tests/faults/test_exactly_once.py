"""Exactly once: who reads what is committed sees each record once, whatever happens to workers and broker."""

import asyncio
import dataclasses
import subprocess
from collections import Counter

import pytest

from stream_tpp.topologies import ledger
from stream_tpp.topologies.ledger import Audit
from stream_tpp.topologies.settings import Settings
from tests.faults.conftest import FaultyKafka
from tests.faults.fleet import Fleet, Ways
from tests.faults.proxy import Proxy
from tests.faults.test_broker import recovered
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

FAUSTS_OWN = Ways(fausts_transactions=True)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, worker=dataclasses.replace(settings.worker, processing_guarantee="exactly_once"))


async def committed(settings: Settings, traffic: Traffic, fleet: Fleet) -> Audit:
    """The account of what a reader of committed records sees."""
    await traffic.pause()
    return await verdict(settings, traffic.sent, fleet.logs, isolation="read_committed")


async def kill_and_replace(fleet: Fleet, kills: int, ways: Ways = Ways()) -> None:  # noqa: B008
    for _ in range(kills):
        await asyncio.sleep(3.5)
        fleet.running()[0].kill()
        await asyncio.to_thread(fleet.start, ways=ways)


@pytest.mark.parametrize("workers", [1, 3])
async def test_workers_that_are_killed_repeat_nothing(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool, workers: int
) -> None:
    fleet.start(workers)
    traffic.flow()
    kills = 10 if soak else 2
    await kill_and_replace(fleet, kills)
    account = await committed(settings, traffic, fleet)
    batches = {topic: in_transactions(own_kafka, topic) for topic in written(own_kafka, settings)}
    print(f"{workers} workers, {kills} kills, {account.events_in} events, {account.duplicated} repeated records, {batches}")
    assert account.duplicated == 0
    assert len(batches) == 5
    assert all(inside and not outside for inside, outside in batches.values())
    assert not fleet.said_dead


async def test_without_transactions_killed_workers_repeat_themselves(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    """The test above can fail."""
    at_least_once = dataclasses.replace(
        settings, worker=dataclasses.replace(settings.worker, processing_guarantee="at_least_once")
    )
    fleet.settings = at_least_once
    fleet.start()
    traffic.flow()
    await kill_and_replace(fleet, 2)
    account = await committed(at_least_once, traffic, fleet)
    print(f"2 kills, {account.events_in} events, {account.duplicated} repeated records")
    assert account.duplicated


async def test_faust_s_transactions_do_not_keep_a_killed_worker_from_repeating_itself(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the transactions are ours: should a newer Faust fail this test, its own may do."""
    if not soak:
        pytest.skip("takes a minute: STREAM_TPP_SOAK=1 runs it")
    monkeypatch.setattr(ledger, "MOST_FAULTS", 1_000_000)
    fleet.settings = dataclasses.replace(
        settings, worker=dataclasses.replace(settings.worker, processing_guarantee="at_least_once")
    )
    fleet.start(ways=FAUSTS_OWN)
    traffic.flow()
    await kill_and_replace(fleet, 2, FAUSTS_OWN)
    account = await committed(settings, traffic, fleet)
    repeated = Counter(fault.split()[1] for fault in account.faults)
    within = {topic: in_transactions(own_kafka, topic) for topic in (settings.topics.forecasts, settings.topics.warnings)}
    print(f"2 kills, {account.events_in} events, repeated: {dict(repeated)}; (within, outside) transactions: {within}")
    # The app reads warnings, and so its producer knows where they go; it does not read forecasts.
    assert within[settings.topics.forecasts][0] == within[settings.topics.warnings][1] == 0
    assert repeated["forecast"]


async def test_one_becomes_three_and_one_again_and_nothing_is_repeated(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    fleet.start()
    traffic.flow()
    fleet.start(2)
    await asyncio.sleep(2)
    for worker in fleet.running()[:2]:
        assert await asyncio.to_thread(worker.end) == 0
    await asyncio.to_thread(fleet.await_ready)
    account = await committed(settings, traffic, fleet)
    print(f"{account.events_in} events, {account.duplicated} repeated records")
    assert account.duplicated == 0
    assert not fleet.said_dead


async def test_a_frozen_worker_that_wakes_up_repeats_nothing(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    frozen, _ = fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    frozen.pause()
    # Longer than its session: the other takes its partitions over.
    await asyncio.sleep(9)
    frozen.resume()
    await asyncio.sleep(3)
    died = await recovered(fleet)
    account = await committed(settings, traffic, fleet)
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")
    assert account.duplicated == 0
    assert ended_with_a_sentence(fleet)


async def test_a_worker_cut_off_from_its_broker_gives_way_and_repeats_nothing(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool
) -> None:
    async with Proxy(own_kafka.proxy_port, own_kafka.behind) as proxy:
        fleet.launch(dataclasses.replace(settings, kafka=own_kafka.proxied_connection))
        fleet.launch()
        await asyncio.to_thread(fleet.await_ready)
        traffic.flow()
        await asyncio.sleep(2)
        proxy.cut()
        await asyncio.sleep(30 if soak else 10)
        proxy.mend()
        died = await recovered(fleet)
        await asyncio.sleep(2)
        account = await committed(settings, traffic, fleet)
        for worker in fleet.running():
            worker.kill()
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")
    assert account.duplicated == 0
    assert ended_with_a_sentence(fleet)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_broker_that_goes_and_comes_back_makes_workers_repeat_nothing(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool, crash: bool
) -> None:
    fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    await asyncio.to_thread(own_kafka.kill_node if crash else own_kafka.stop_node, 1)
    # Kafka's transactions last a minute at most.
    await asyncio.sleep((80 if soak else 8) if crash else 0)
    await asyncio.to_thread(own_kafka.start_node, 1)
    await asyncio.to_thread(own_kafka.await_nodes, 1)
    died = await recovered(fleet)
    await asyncio.sleep(2)
    account = await committed(settings, traffic, fleet)
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")
    assert account.duplicated == 0
    assert ended_with_a_sentence(fleet)


def ended_with_a_sentence(fleet: Fleet) -> bool:
    """Whether each worker that ended by itself said that Kafka takes no more of its transactions."""
    ended = [worker for worker in fleet.workers if worker.replaced]
    return all("Kafka takes no more transactions of this worker" in worker.log.read_text() for worker in ended)


def written(kafka: FaultyKafka, settings: Settings) -> list[str]:
    """The topics that workers write to, but dead letters, of which there are none."""
    topics, application = settings.topics, settings.worker.application
    folders = (folder.name.removesuffix("-0") for folder in (kafka.folder / "node-1").glob(f"{application}-*-changelog-0"))
    return [topics.forecasts, topics.warnings, topics.alerts, *folders]


def in_transactions(kafka: FaultyKafka, topic: str) -> tuple[int, int]:
    """How many batches of the topic's first partition lie in transactions, and how many do not."""
    segments = sorted((kafka.folder / "node-1" / f"{topic}-0").glob("*.log"))
    dump = [*kafka.command, "kafka.tools.DumpLogSegments", "--files", ",".join(map(str, segments))]
    told = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    return told.count("isTransactional: true"), told.count("isTransactional: false")
