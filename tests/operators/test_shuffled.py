"""The same log in another order of arrival, each event late by no more than the grace: the same histories in the end."""

from __future__ import annotations

import random
from collections.abc import Sequence

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.operators.driver import Driver
from stream_tpp.operators.histories import Histories
from stream_tpp.operators.records import Source
from tests.operators.conftest import Engine

GRACE, WINDOW, ENTITIES = 10.0, 12, 3

# About an event a second, so no more than a few of an entity overtake one that is late by the grace.
REORDER = 24


def log(seed: int, count: int) -> list[Event]:
    draw = random.Random(seed)
    return [
        Event(f"e{draw.randrange(ENTITIES)}", n + draw.random() / 2, draw.choice(["ok", "bad"]), f"id-{n}") for n in range(count)
    ]


def shuffled(events: Sequence[Event], seed: int, by: float = GRACE) -> list[Event]:
    draw = random.Random(seed)
    return sorted(events, key=lambda event: event.time + by * draw.random())


def seen(history: History) -> tuple[list[float], list[int], float | None]:
    return history.times.tolist(), history.types.tolist(), history.start


def final(events: Sequence[Event], reorder: int = REORDER) -> dict[str, object]:
    """The history of each entity after all events, and one more that is later than all."""
    histories = Histories({}, window=WINDOW, slack=4, grace=GRACE, reorder=reorder)
    found: dict[str, object] = {}
    ends = [Event(f"e{number}", 1e6, "ok", "end") for number in range(ENTITIES)]
    for offset, event in enumerate([*events, *ends]):
        absorbed = histories.absorb(event, int(event.type == "bad"), Source("events", 0, offset), committed=1 << 62)
        assert absorbed is not None, event
        found[event.entity] = seen(absorbed[0])
    return found


@given(st.integers(0, 1 << 30), st.integers(0, 150))
def test_histories_do_not_depend_on_the_order_of_arrival_within_the_grace(seed: int, count: int) -> None:
    events = log(seed, count)
    assert final(shuffled(events, seed + 1)) == final(events)


def test_without_room_for_reordering_they_do() -> None:
    events = log(0, 150)
    assert any(final(shuffled(events, seed), reorder=0) != final(events, reorder=0) for seed in range(20))


@settings(max_examples=30)
@given(st.integers(0, 1 << 30), st.integers(0, 80))
def test_nor_do_the_last_forecasts_of_a_driven_topology(seed: int, count: int) -> None:
    events = log(seed, count)
    asked = [last_requests(order) for order in (events, shuffled(events, seed + 1))]
    assert asked[0] == asked[1]


def last_requests(events: Sequence[Event]) -> dict[str, object]:
    driver = Driver(Engine(), window=WINDOW, slack=4, grace=GRACE, reorder=REORDER)
    ends = [Event(f"e{number}", 1e6, "ok", "end") for number in range(ENTITIES)]
    for event in [*events, *ends]:
        driver.send(orjson.dumps({"entity": event.entity, "time": event.time, "type": event.type, "id": event.id}))
    assert driver.counters.dead_lettered.total() == 0
    return {request.entity: seen(request.history) for request in driver.forecaster.requests}  # type: ignore[attr-defined]
