"""Events that are odd in name, number or time."""

import asyncio

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet, Ways
from tests.faults.traffic import EPOCH, Traffic, verdict

pytestmark = pytest.mark.slow

ODD = ["x" * 10_240, "Störung ♥ 🏥 مرحبا", "a:b:c", "new\nline", '"quoted"\\', "x" * 64, "x" * 65, "nul\0in\0it"]


async def test_a_hot_entity_many_cold_ones_and_odd_names(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    fleet.start(2)
    traffic.rate = 200
    names = iter(range(1_000_000))
    traffic.flow(lambda random: "hot" if random.random() < 0.5 else f"cold-{next(names)}")
    await asyncio.sleep(2)
    for _ in range(3):
        await traffic.burst(ODD)
    await traffic.send(b"not an event", b"junk")
    await traffic.send(traffic.event("new", type="never seen"), b"new")
    await traffic.send(traffic.event("y" * 20_000), b"too long a name")
    fleet.running()[0].kill()
    fleet.start()
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert dict(account.reasons) == {"not_json": 1, "oversized_entity": 1, "unknown_type": 1}
    print(f"{account.events_in} events, {account.duplicated} repeated records")


async def test_clocks_that_jump_cost_dead_letters_at_most(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    """Clocks of the workers lie years apart, and those of events jump back and forth."""
    fleet.launch(ways=Ways(skew=-86_400.0 * 400))
    fleet.launch(ways=Ways(skew=86_400.0 * 400))
    await asyncio.to_thread(fleet.await_ready)
    traffic.flow()
    await asyncio.sleep(2)
    for day in (2, -2, 30, 0):
        at = EPOCH + 86_400.0 * day
        await traffic.send(traffic.event("jumpy", time=at), b"jumpy")
    fleet.running()[0].kill()
    fleet.launch()
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    assert dict(account.reasons) == {"too_late": 2}
    print(f"{account.events_in} events, {account.duplicated} repeated records")
