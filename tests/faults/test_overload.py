"""Ten times more events than the engine can answer: the newest state of each entity wins, and alerts do not wait in line."""

from __future__ import annotations

import asyncio
import math
import random
import time
from bisect import bisect_right
from collections import defaultdict

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
    at_first, began, batches = worker.memory(), time.monotonic(), worker.metric("stream_tpp_sampler_batches_total")
    await overload(traffic, 600 if soak else 10)
    # Batch by batch, the engine is never idle.
    batch = (time.monotonic() - began) / (worker.metric("stream_tpp_sampler_batches_total") - batches)
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
    told = [
        f"{name} ({len(each)}) p50 {quantile(each, 0.5):.2f} s, p99 {quantile(each, 0.99):.2f} s, last {each[-1]:.2f} s"
        for name, each in (("urgent", risky), ("others", others))
    ]
    told.append(f"a batch {batch:.2f} s")
    counts = f"{account.events_in} events, {account.conflated} conflated, {account.duplicated} repeated"
    print(f"{counts}, {lag} behind, {grown >> 20} MiB; {'; '.join(told)}")
    # The order in which the engine is asked is put to the test: the batch under way and one's own, and the machine's own delays
    # have a third. Its pace is the test's.
    assert quantile(risky, 0.99) < 3 * batch, told
    assert quantile(risky, 0.9) < quantile(others, 0.5), told


def quantile(ranked: list[float], share: float) -> float:
    return ranked[int(share * len(ranked))]


async def behind(settings: Settings, traffic: Traffic) -> int:
    """Events whose outputs are not committed yet."""
    return traffic.sent - (await committed(settings)).total()


async def waited(settings: Settings, warm_up: int) -> tuple[list[float], list[float]]:
    """Sorted seconds from an event to the forecast that is or stands for its own: of urgent entities, of others.

    Urgent is an entity from a score that would not clear an alert to the next that would.
    """
    ledger = Ledger(settings.topics.events, settings.rules)
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    async for entry in read(settings.kafka, settings.topics):
        ledger.take(entry)
        if entry.role == "warnings":
            warning = orjson.loads(entry.value or b"")
            scores[warning["entity"]].append((entry.timestamp, warning["score"]))
    (rule,) = settings.rules
    groups: tuple[list[float], list[float]] = ([], [])
    for place, event in sorted(ledger.events.items(), key=lambda item: item[1].timestamp)[warm_up:]:
        forecast = ledger.forecasts.get(place) or ledger.forecasts[ledger.conflated[place]]
        told = scores[event.entity or ""]
        last = bisect_right(told, (event.timestamp, math.inf)) - 1
        meanwhile = [score for at, score in told[max(last, 0) :] if at < forecast.timestamp]
        urgent = last >= 0 and all(score >= rule.clears_below for score in meanwhile)
        groups[not urgent].append(forecast.timestamp - event.timestamp)
    return sorted(groups[0]), sorted(groups[1])


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
