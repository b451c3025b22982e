"""What was read of a history is kept, extended by each event, bounded, and never changes a bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stream_tpp.forecast import Forecaster, Request
from stream_tpp.history import History, Ring, Slot
from stream_tpp.model.model import Model
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.prefixes import Prefix, Prefixes, events_of
from stream_tpp.sampling.sampler import sample
from stream_tpp.warning.rule import Rule
from tests.sampling.test_native import TYPES, build

PLAN = Plan(paths=2, max_events=3)
WINDOW = 64
STEP = 6
EVENTS = 150


def stream(entity: int) -> list[Slot]:
    """Events of which one in twelve comes late: up to a dozen places, or from before all that a model sees."""
    rng = np.random.default_rng(entity)
    times = 1.37e9 + np.cumsum(rng.exponential(20_000, EVENTS))
    late = rng.random(EVENTS) < 1 / 12
    times[late] -= rng.choice([30_000.0, 200_000.0, 3e6], late.sum())
    return [Slot(offset, float(time), int(rng.integers(TYPES)), 0) for offset, time in enumerate(times)]


def futures(
    model: Model, histories: list[History], seeds: list[int], prefixes: Prefixes | None = None, entities: tuple[str, ...] = ()
) -> Futures:
    return sample(
        model.target,
        model.draft,
        histories,
        PLAN,
        scale=model.scale,
        types=TYPES,
        window=model.window,
        seeds=seeds,
        now=[None] * len(histories),
        backend="native",
        prefixes=prefixes,
        entities=entities,
    )


def assert_same_bits(one: Futures, other: Futures) -> None:
    assert torch.equal(one.leads.view(torch.int64), other.leads.view(torch.int64))
    assert torch.equal(one.types, other.types)
    y = torch.zeros(len(one.lengths), dtype=torch.float64)
    assert torch.equal(one.next.log_prob_gap(y), other.next.log_prob_gap(y))
    assert torch.equal(one.next.types(), other.next.types())


@pytest.mark.parametrize("shape", ["thp, cycles", "sahp", "attnhp"])
def test_what_was_kept_changes_no_bit_through_late_events_slides_redelivery_and_evictions(shape: str) -> None:
    model, rng = build(shape), np.random.default_rng(0)
    rings = [Ring(WINDOW, EVENTS) for _ in range(3)]
    streams = [stream(entity) for entity in range(3)]
    # Room for two entities of three.
    prefixes = Prefixes(most_bytes=2 * _bytes(model, WINDOW))
    for offset in range(EVENTS):
        for ring, slots in zip(rings, streams, strict=True):
            ring.absorb(slots[offset])
        asked = [entity for entity in range(3) if rng.random() < 0.7] or [0]
        again = [offset if rng.random() < 0.9 else max(0, offset - int(rng.integers(1, 20))) for _ in asked]
        histories = [rings[entity].as_of(at) for entity, at in zip(asked, again, strict=True)]
        warm = futures(model, histories, asked, prefixes, tuple(f"entity-{entity}" for entity in asked))
        prefixes.trim()
        assert_same_bits(warm, futures(model, histories, asked))
        assert prefixes.nbytes <= prefixes.most_bytes
    assert min(prefixes.evictions, prefixes.hits, prefixes.misses) > 50


def test_one_who_takes_over_what_is_not_the_same_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ring, prefixes = build("thp"), Ring(WINDOW, EVENTS), Prefixes()
    monkeypatch.setattr(Prefix, "shared", lambda prefix, events: min(len(prefix), len(events)))
    found = False
    for slot in stream(0):
        ring.absorb(slot)
        history = ring.as_of(slot.offset)
        warm, cold = futures(model, [history], [0], prefixes, ("one",)), futures(model, [history], [0])
        found = found or not torch.equal(warm.leads, cold.leads)
    assert found


def test_events_in_order_extend_what_was_read_but_where_the_window_slides() -> None:
    model, ring, prefixes = build("thp"), Ring(WINDOW, EVENTS), Prefixes()
    readings = []
    for number in range(EVENTS):
        ring.absorb(Slot(number, 1.37e9 + 1000.0 * number, number % TYPES, 0))
        before = prefixes.read
        futures(model, [ring.as_of(number)], [0], prefixes, ("one",))
        readings.append(prefixes.read - before)
    # BOS and all events are read; in the beginning BOS is where the first event is.
    slides = list(range(WINDOW, EVENTS, STEP))
    assert readings[0] == 2
    assert [readings[number] for number in slides] == [WINDOW - STEP + 2] * len(slides)
    assert all(count == 1 for number, count in enumerate(readings) if number not in (0, *slides))


def test_the_least_recently_used_goes_first() -> None:
    prefixes = Prefixes(most_bytes=2 * _prefix(3).nbytes)
    for entity in ("a", "b", "a", "c"):
        prefixes.keep(entity, _prefix(3), 0)
    assert prefixes.nbytes == 3 * _prefix(3).nbytes
    prefixes.trim()
    assert prefixes.find("b") is None
    assert prefixes.find("a") is not None
    assert prefixes.find("c") is not None
    assert prefixes.nbytes == prefixes.most_bytes


def test_one_prefix_too_large_is_not_kept() -> None:
    prefixes = Prefixes(most_bytes=_prefix(3).nbytes - 1)
    prefixes.keep("a", _prefix(3), 0)
    prefixes.trim()
    assert (len(prefixes), prefixes.nbytes) == (0, 0)


@pytest.mark.parametrize("column", ["y", "kinds", "times"])
def test_events_are_shared_up_to_the_first_bit_that_differs(column: str) -> None:
    parts = {"y": np.zeros(5), "kinds": np.zeros(5, np.int64), "times": np.arange(5.0)}
    whole = Prefix(events_of(**parts), *[np.zeros(1, np.float32)] * 5)
    assert whole.shared(events_of(**parts)[:4]) == 4
    parts[column][3] = 1 if column == "kinds" else np.nextafter(parts[column][3], 9.0)
    assert whole.shared(events_of(**parts)) == 3


@pytest.mark.parametrize("prefix_bytes", [0, 1 << 20])
def test_a_forecast_with_all_its_rules_reads_each_history_once(prefix_bytes: int) -> None:
    rules = [Rule({name}, horizon=20_000.0, threshold=0.3) for name in "ab"]
    forecaster = Forecaster(build("thp"), rules, horizon=30_000.0, paths=4, most_paths=8, prefix_bytes=prefix_bytes)
    requests = [_request(slots) for slots in (stream(0)[:40], stream(1)[:30])]
    forecaster.forecast(requests)
    # BOS and all events.
    assert forecaster.prefixes.read == 41 + 31
    assert forecaster.prefixes.misses == 2
    assert (forecaster.prefixes.nbytes > 0) == (prefix_bytes > 0)


def test_weights_that_changed_read_anew() -> None:
    model = build("thp")
    forecaster, request = Forecaster(model, horizon=30_000.0, paths=4), _request(stream(0)[:40])
    before = forecaster.forecast([request])
    with torch.no_grad():
        for parameter in model.target.parameters():
            parameter.mul_(1.05)
    after = forecaster.forecast([request])
    assert after != before
    assert after == Forecaster(model, horizon=30_000.0, paths=4).forecast([request])
    assert forecaster.prefixes.misses == 2


def _request(slots: list[Slot]) -> Request:
    ring = Ring(WINDOW, EVENTS, slots)
    history = ring.as_of(slots[-1].offset)
    return Request(f"of {len(slots)}", history, float(history.times[-1]), seed=1)


def _prefix(n: int) -> Prefix:
    cache = np.zeros((1, 2, 8, 32), np.float32)
    law = np.zeros(3, np.float32)
    return Prefix(np.zeros((n, 3), np.int64), cache, cache.copy(), np.zeros((2, 8), np.float32), law, law.copy())


def _bytes(model: Model, events: int) -> int:
    prefixes = Prefixes()
    history = History(1e9 + np.arange(float(events)), np.zeros(events, np.int64))
    futures(model, [history], [0], prefixes, ("one",))
    return prefixes.nbytes
