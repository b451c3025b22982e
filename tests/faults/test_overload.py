"""Ten times more events than the engine can answer: the newest state of each entity wins, and alerts do not wait in line."""

from __future__ import annotations

import asyncio
import random
from statistics import quantiles

import orjson
import pytest

from stream_tpp.topologies.audit import read
from stream_tpp.topologies.ledger import Ledger
from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic, committed, verdict

pytestmark = pytest.mark.slow

HOT, COLD, AT_RISK = ["hot"], [f"cold-{number}" for number in range(40)], [f"risky-{number}" for number in range(4)]

# A request takes the engine 50 ms, so it answers 20 a second.
SLOW, RATE = "each 0.05", 200.0


async def overload(traffic: Traffic, seconds: float) -> None:
    """Half of all events are of one entity; four, whose events are mostly bad, have a twentieth."""
    draw = random.Random(0)
    for _ in range(round(seconds / 0.05)):
        for _ in range(round(RATE * 0.05)):
            (group,) = draw.choices((HOT, COLD, AT_RISK), (50, 45, 5))
            bad = group is AT_RISK and draw.random() < 0.7
            entity = draw.choice(group)
            await traffic.send(traffic.event(entity, type="bad" if bad else "ok"), entity.encode())
        await asyncio.sleep(0.05)


async def test_under_overload_the_newest_state_wins_and_alerts_do_not_wait_in_line(
    fleet: Fleet, traffic: Traffic, settings: Settings, soak: bool
) -> None:
    # The hot entity has more events in flight than its ring has slack for; its newest wait for a commit, and no other's do.
    (worker,) = fleet.start()
    # Before the overload, the worker has seen who is at risk.
    for _ in range(5):
        for entity in AT_RISK:
            await traffic.send(traffic.event(entity, type="bad"), entity.encode())
    await asyncio.sleep(1)
    fleet.feel(SLOW)
    warm_up = traffic.sent
    await overload(traffic, 6)
    at_first = worker.memory()
    await overload(traffic, 600 if soak else 10)
    grown = worker.memory() - at_first
    assert grown < (32 << 20), "what waits is held by the worker"
    assert worker.metric("stream_tpp_rebalances") == 1
    assert (worker.live, worker.ready) == (True, True)
    assert worker.metric("stream_tpp_events_conflated_total") > 0
    lag = await behind(settings, traffic)
    fleet.feel("well")
    account = await verdict(settings, traffic.sent, fleet.logs)
    async with asyncio.timeout(30):
        while await behind(settings, traffic):
            await asyncio.sleep(0.5)
    assert account.conflated > account.forecasts
    assert await newest_is_of_the_last_event(settings)
    risky, others = await waited(settings, warm_up)
    told = [f"{name} p50 {each[49]:.2f} s, p99 {each[98]:.2f} s" for name, each in (("at risk", risky), ("others", others))]
    counts = f"{account.events_in} events, {account.conflated} conflated, {account.duplicated} repeated"
    print(f"{counts}, {lag} behind, {grown >> 20} MiB; {'; '.join(told)}")
    # The engine's pace is the test's own; the order in which it is asked is what is put to the test.
    assert risky[89] < others[49], told


async def behind(settings: Settings, traffic: Traffic) -> int:
    """Events whose outputs are not committed yet."""
    return traffic.sent - (await committed(settings)).total()


async def waited(settings: Settings, warm_up: int) -> tuple[list[float], list[float]]:
    """Percentiles of the seconds from an event to the forecast that is or stands for its own: of those at risk, of others."""
    ledger = Ledger(settings.topics.events, settings.rules)
    async for entry in read(settings.kafka, settings.topics):
        ledger.take(entry)
    groups: tuple[list[float], list[float]] = ([], [])
    for place, event in sorted(ledger.events.items(), key=lambda item: item[1].timestamp)[warm_up:]:
        forecast = ledger.forecasts.get(place) or ledger.forecasts[ledger.conflated[place]]
        groups[event.entity not in AT_RISK].append(forecast.timestamp - event.timestamp)
    return quantiles(groups[0], n=100), quantiles(groups[1], n=100)


async def newest_is_of_the_last_event(settings: Settings) -> bool:
    """Whether the forecast of an entity that has read the farthest is that of its last event."""
    events: dict[bytes | None, int] = {}
    forecasts: dict[bytes | None, int] = {}
    async for entry in read(settings.kafka, settings.topics):
        if entry.role == "events":
            events[entry.key] = entry.offset
        elif entry.role == "forecasts":
            forecasts[entry.key] = max(forecasts.get(entry.key, -1), orjson.loads(entry.value or b"")["source"]["offset"])
    return forecasts == events
