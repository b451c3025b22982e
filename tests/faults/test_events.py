"""Events that are odd in name, number or time."""

import asyncio
import dataclasses
import os
import random
import time

import orjson
import pytest

from stream_tpp.logs import read_log
from stream_tpp.topologies.settings import Histories, Settings
from stream_tpp.warning.rule import Rule
from tests.faults.engine import RULE
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


COLD = 20_000
LOG = os.environ.get("STREAM_TPP_LOG")


@pytest.mark.skipif(LOG is None, reason="STREAM_TPP_LOG names no log")
@pytest.mark.timeout(1200)
async def test_a_log_of_ones_own_with_an_event_of_a_cold_entity_for_each_of_its(
    fleet: Fleet, traffic: Traffic, settings: Settings
) -> None:
    """500 a second, histories as a user gets them; the second most frequent type is the alarm. A worker is killed halfway."""
    assert LOG is not None
    log = list(read_log(LOG))
    types = sorted({event.type for event in log}, key=[event.type for event in log].count, reverse=True)
    fleet.engine = dataclasses.replace(fleet.engine, types=tuple(types), window=256)
    rules = (Rule({types[1]}, horizon=60, threshold=0.6, clear=0.3, name=RULE),)
    fleet.settings = dataclasses.replace(settings, histories=Histories(folder=settings.histories.folder), rules=rules)
    fleet.start(2)
    draw, began = random.Random(0), time.monotonic()
    for number, event in enumerate(log):
        for entity in (event.entity, f"cold-{draw.randrange(COLD)}"):
            await traffic.send(orjson.dumps({"entity": entity, "time": event.time, "type": event.type}), entity.encode())
        await asyncio.sleep(max(0.0, began + number / 250 - time.monotonic()))
        if number == len(log) // 2:
            fleet.running()[0].kill()
            fleet.launch()
    await traffic.pause()
    account = await verdict(fleet.settings, traffic.sent, fleet.logs, within=600)
    assert not fleet.said_dead
    assert not account.dead_lettered
    print(
        f"{account.events_in} events, {account.conflated} conflated, {account.duplicated} repeated records, "
        f"alerts {account.alerts_raised} raised, {account.alerts_cleared} cleared"
    )
