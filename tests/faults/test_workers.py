"""Workers come and go, as they like or as they must: no event is lost and no two outputs contradict one another."""

import asyncio
from random import Random

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic, first_forecast_after, verdict

pytestmark = pytest.mark.slow


async def test_workers_that_are_killed_lose_nothing(fleet: Fleet, traffic: Traffic, settings: Settings, soak: bool) -> None:
    fleet.start(3)
    traffic.flow()
    kills = 10 if soak else 2
    random = Random(kills)
    for _ in range(kills):
        # Long enough for the group to find itself, or not: one that is starting may be hit, too.
        await asyncio.sleep(random.uniform(3, 15 if soak else 5))
        random.choice(fleet.running()).kill()
        fleet.launch()
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{kills} kills, {account.events_in} events, {account.duplicated} repeated records")


async def test_the_only_worker_is_killed_and_its_successor_goes_on(
    fleet: Fleet, traffic: Traffic, settings: Settings, soak: bool
) -> None:
    (worker,) = fleet.start()
    traffic.flow()
    await asyncio.sleep(3)
    died = worker.kill()
    fleet.start()
    await asyncio.sleep(1)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    back = await first_forecast_after(settings, died) - died
    print(f"{account.events_in} events, {account.duplicated} repeated records, back after {back:.1f} s")
    # Elsewhere the machine may have other things to do.
    assert not soak or back <= 10


async def test_one_becomes_three_and_one_again_and_each_leaves_in_order(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    fleet.start()
    traffic.flow()
    fleet.start(2)
    assert all(worker.live for worker in fleet.running())
    await asyncio.sleep(2)
    for worker in fleet.running()[:2]:
        assert await asyncio.to_thread(worker.end) == 0
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records")


async def test_all_are_replaced_one_by_one(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    old = fleet.start(2)
    traffic.flow()
    for worker in old:
        fleet.launch()
        await asyncio.to_thread(fleet.await_ready)
        assert await asyncio.to_thread(worker.end) == 0
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records")


async def test_a_frozen_worker_that_wakes_up_contradicts_nobody(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    frozen, _ = fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    frozen.pause()
    # Longer than its session: the other takes its partitions over.
    await asyncio.sleep(9)
    frozen.resume()
    await asyncio.sleep(3)
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records")
