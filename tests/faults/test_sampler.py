"""The engine is slow, fails, or never answers: the worker stays in its group, and every event gets its due."""

import asyncio
import dataclasses

import pytest

from stream_tpp.topologies.settings import Sampler, Settings
from tests.faults.fleet import Fleet, until
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow


async def test_ten_seconds_a_batch_cost_no_membership(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    first, second = fleet.start(2)
    fleet.feel("batch 10")
    before = [worker.metric("stream_tpp_rebalances") for worker in (first, second)]
    await traffic.burst(f"entity-{number}" for number in range(60))
    await asyncio.sleep(13)
    assert [worker.metric("stream_tpp_rebalances") for worker in (first, second)] == before
    assert first.ready
    assert second.ready
    # Another one joins while both are at it: they let go in time, and neither is thrown out of the group.
    third = fleet.launch()
    await asyncio.to_thread(until, lambda: third.ready, "the third is ready", fleet.logs)
    after = [worker.metric("stream_tpp_rebalances") for worker in (first, second)]
    assert all(number <= earlier + 2 for earlier, number in zip(before, after, strict=True)), (before, after)
    fleet.feel("well")
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records, rebalances {before} {after}")


async def test_an_engine_that_fails_costs_dead_letters_and_nothing_else(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    (worker,) = fleet.start()
    names = ["guilty", "nan", "good-1", "good-2"]
    traffic.flow(lambda random: random.choice(names))
    await asyncio.sleep(2)
    fleet.feel("raise")
    await asyncio.sleep(1)
    assert (worker.live, worker.ready) == (True, True)
    fleet.feel("well")
    await asyncio.sleep(1)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert set(account.reasons) == {"sampler_failed"}
    assert 0 < account.dead_lettered < account.events_in
    print(f"{account.events_in} events, {account.dead_lettered} dead letters")


async def test_an_engine_that_hangs_shows_in_livez_and_a_restart_makes_up_for_it(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    (worker,) = fleet.start()
    traffic.flow()
    await asyncio.sleep(2)
    fleet.feel("hang")
    await asyncio.to_thread(until, lambda: not worker.live, "/livez says so", fleet.logs)
    assert not worker.ready
    # SIGTERM is obeyed, hang or not.
    assert await asyncio.to_thread(worker.end) == 0
    fleet.feel("well")
    fleet.start()
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    print(f"{account.events_in} events, {account.duplicated} repeated records")


async def test_ten_times_what_the_sampler_can_do_waits_in_kafka_and_drains(
    fleet: Fleet, traffic: Traffic, settings: Settings, soak: bool
) -> None:
    settings = dataclasses.replace(settings, sampler=Sampler(max_in_flight=256, conflate=False))
    (worker,) = fleet.start(settings=settings)
    fleet.feel("each 0.05")
    traffic.rate = 200
    traffic.flow()
    await asyncio.sleep(5)
    at_first = worker.memory()
    await asyncio.sleep(600 if soak else 8)
    assert worker.memory() < at_first + (32 << 20), "what waits is held by the worker"
    assert worker.metric("stream_tpp_events_in_flight") <= settings.sampler.max_in_flight
    assert worker.metric("stream_tpp_rebalances") == 1
    assert (worker.live, worker.ready) == (True, True)
    await traffic.pause()
    fleet.feel("well")
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records")
