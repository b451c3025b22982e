"""Policies on scripted calls, whose costs and acceptance are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.sampling.draft_length import (
    LONGEST,
    Acceptance,
    Call,
    DraftLength,
    Fixed,
    Throughput,
    Utilisation,
    _Runs,
    events_a_round,
    policy,
)
from stream_tpp.sampling.futures import Stats

CPU = torch.device("cpu")
Cost = Callable[[int], float]


def costs(drafting: float, step: float) -> Cost:
    """Of a round, in rounds that draft nothing."""
    return lambda gamma: drafting + gamma * step if gamma else 1.0


def speed(gamma: int, a: float, cost: Cost) -> float:
    return events_a_round(a, gamma) / cost(gamma)


def fastest(a: float, cost: Cost) -> float:
    return max(speed(gamma, a, cost) for gamma in range(LONGEST + 1))


def call(gamma: int, a: float, cost: Cost, noise: np.random.Generator | None = None, rows: int = 64) -> Call:
    """300 rounds of `rows` paths; with noise, acceptance by chance and costs a tenth off."""
    rounds = 300
    accepted, rejected = round(rounds * (events_a_round(a, gamma) - 1)), round(rounds * (1 - a**gamma))
    seconds = 1e-4 * rounds * cost(gamma)
    if noise is not None:
        stood = np.minimum(noise.geometric(1 - a, rounds) - 1, gamma)
        accepted, rejected = int(stood.sum()), int((stood < gamma).sum())
        seconds *= float(np.exp(0.1 * noise.standard_normal()))
    return Call(rows, gamma, Stats(rounds, rounds, rounds * gamma, accepted, rounds + accepted, rejected), seconds)


def lengths(policy: DraftLength, calls: int, a: float, cost: Cost, noise: np.random.Generator | None = None) -> Counter[int]:
    """How often the policy chose each length, in so many calls."""
    chosen: Counter[int] = Counter()
    for _ in range(calls):
        gamma = policy.choose(64)
        chosen[gamma] += 1
        policy.observe(call(gamma, a, cost, noise))
    return chosen


def share_of_the_fastest(chosen: Counter[int], a: float, cost: Cost) -> float:
    """Speed at these lengths over that of the fastest one."""
    slowness = sum(times / speed(gamma, a, cost) for gamma, times in chosen.items()) / chosen.total()
    return 1 / slowness / fastest(a, cost)


def test_a_fixed_length_stays() -> None:
    assert lengths(Fixed(3), 5, 0.2, costs(1, 0.1)) == {3: 5}


@pytest.mark.parametrize(
    ("accepted", "length"), [(0, 2), (10, 2), (29, 2), (30, 3), (57, 5), (79, 7), (80, 8), (95, 8), (100, 8)]
)
def test_by_acceptance_a_tenth_that_stood_is_an_event_to_draft(accepted: int, length: int) -> None:
    by = Acceptance()
    by.observe(Call(1, 4, Stats(25, 25, 100, accepted, 25 + accepted), 1.0))
    assert by.choose(1) == length


def test_by_acceptance_a_batch_that_drafted_nothing_tells_nothing() -> None:
    by = Acceptance()
    before = by.choose(1)
    by.observe(Call(1, 0, Stats(25, 25, 0, 0, 25), 1.0))
    assert by.choose(1) == before


MACHINES = {
    "a deep target": (0.9, costs(1.1, 0.05)),
    "a pass that costs by its places": (0.9, costs(1.2, 0.2)),
    "a poor draft": (0.5, costs(1.1, 0.1)),
    "a draft that never pays": (0.7, costs(1.5, 0.7)),
    "a draft that is always right": (1 - 1e-12, costs(1.1, 0.01)),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_throughput_comes_within_5_percent_of_the_fastest_length(machine: str) -> None:
    a, cost = MACHINES[machine]
    by = Throughput()
    lengths(by, 20, a, cost)
    assert share_of_the_fastest(lengths(by, 100, a, cost), a, cost) > 0.95


@pytest.mark.parametrize("machine", [name for name in MACHINES if "always" not in name])
def test_throughput_does_on_a_noisy_machine_too(machine: str) -> None:
    a, cost = MACHINES[machine]
    shares = []
    for seed in range(8):
        by, noise = Throughput(), np.random.default_rng(seed)
        lengths(by, 20, a, cost, noise)
        shares.append(share_of_the_fastest(lengths(by, 100, a, cost, noise), a, cost))
    assert np.mean(shares) > 0.95


def test_throughput_measures_what_no_straight_line_foresees() -> None:
    """Some shapes suit a machine badly: here the length that the line through the others says is best."""
    smooth = costs(1.2, 0.2)
    best = max(range(LONGEST + 1), key=lambda gamma: speed(gamma, 0.9, smooth))

    def dented(gamma: int) -> float:
        return smooth(gamma) * (1.4 if gamma == best else 1.0)

    by = Throughput()
    lengths(by, 30, 0.9, dented)
    chosen = lengths(by, 100, 0.9, dented)
    assert chosen[best] < 10
    assert share_of_the_fastest(chosen, 0.9, dented) > 0.95


@pytest.mark.parametrize(("before", "after"), [(0.95, 0.3), (0.3, 0.95)])
def test_throughput_goes_to_another_length_when_the_acceptance_changes(before: float, after: float) -> None:
    cost, by = costs(1.1, 0.15), Throughput()
    old = lengths(by, 80, before, cost)
    assert share_of_the_fastest(old, after, cost) < 0.85
    lengths(by, 80, after, cost)
    assert share_of_the_fastest(lengths(by, 80, after, cost), after, cost) > 0.95


def test_throughput_begins_to_draft_again_when_the_draft_has_become_good() -> None:
    cost, by = costs(1.2, 0.4), Throughput()
    lengths(by, 40, 0.1, cost)
    assert lengths(by, 40, 0.1, cost)[0] > 30
    lengths(by, 80, 0.95, cost)
    assert share_of_the_fastest(lengths(by, 80, 0.95, cost), 0.95, cost) > 0.95


def test_throughput_keeps_what_pays_for_one_path_from_what_pays_for_many() -> None:
    by, one, many = Throughput(), costs(1.0, 0.02), costs(1.5, 0.9)
    for rows, cost in [(1, one), (1024, many)] * 53:
        by.observe(call(by.choose(rows), 0.8, cost, rows=rows))
    assert by.choose(1) > 4
    assert by.choose(1024) == by.choose(960) == 0


def test_throughput_does_not_count_the_call_that_pays_for_compilation() -> None:
    by, cost = Throughput(), costs(1.1, 0.05)
    first = call(by.choose(64), 0.9, cost)
    by.observe(Call(64, first.draft_length, first.stats, 60.0))
    lengths(by, 20, 0.9, cost)
    assert share_of_the_fastest(lengths(by, 100, 0.9, cost), 0.9, cost) > 0.95


def test_the_chance_to_stand_is_that_of_the_events_that_were_judged() -> None:
    """Paths of five events leave no round room for the eight that it might draft."""
    noise, together = np.random.default_rng(0), Stats()
    for _ in range(2000):
        held = 0
        while held < 5:
            limit = 4 - held
            stood = min(int(noise.geometric(0.2)) - 1, limit)
            together.add(Stats(1, 1, limit, stood, stood + 1, int(stood < limit)))
            held += stood + 1
    runs = _Runs(8)
    runs.add(together, 1.0)
    assert runs.chance == together.chance == pytest.approx(0.8, abs=0.01)
    # Were all rounds of eight, more than 0.85 would stand.
    assert 8 * together.acceptance > events_a_round(0.85, 8) - 1


@pytest.mark.parametrize("unlucky", [0, 4])
def test_throughput_measures_again_what_it_measured_at_a_bad_time(unlucky: int) -> None:
    """Nothing pays but drawing event by event, or a draft of four."""
    by, a = Throughput(), 0.5
    cost = costs(1.5, 0.7) if unlucky == 0 else lambda gamma: 1.0 if gamma == 4 else 2.0
    for number in range(120):
        gamma = by.choose(64)
        bad = gamma == unlucky and number < 8
        by.observe(call(gamma, a, (lambda gamma: 1.6 * cost(gamma)) if bad else cost))
    assert lengths(by, 80, a, cost)[unlucky] > 70


def settled(busy: Callable[[int], float], seconds: float = 1.0, calls: int = 60) -> int:
    """Where the policy stays on a device that is so busy at each length."""
    by = Utilisation(lambda: busy(by.choose(1)))
    for _ in range(calls):
        by.observe(Call(1, by.choose(1), Stats(1, 1, 1, 1, 2), seconds))
    return by.choose(1)


def test_utilisation_drafts_more_until_the_device_is_busy_enough() -> None:
    assert settled(lambda gamma: 0.3 + 0.07 * gamma) == 7


def test_utilisation_drafts_less_until_the_device_is_no_longer_too_busy() -> None:
    assert settled(lambda gamma: 0.8 + 0.04 * gamma) == 1


@pytest.mark.parametrize("busy", [0.75, 0.8, 0.85])
def test_utilisation_stays_inside_the_band(busy: float) -> None:
    assert settled(lambda gamma: busy) == 4


@pytest.mark.parametrize(("busy", "end"), [(0.1, LONGEST), (1.0, 0)])
def test_utilisation_ends_where_lengths_do(busy: float, end: int) -> None:
    assert settled(lambda gamma: busy) == end


def test_utilisation_takes_no_step_before_the_device_can_have_noticed() -> None:
    assert settled(lambda gamma: 0.1, seconds=0.1, calls=9) == 4
    assert settled(lambda gamma: 0.1, seconds=0.101, calls=10) == 5


def test_utilisation_is_refused_where_no_device_can_be_asked() -> None:
    with pytest.raises(StreamTppError, match="asks a GPU"):
        policy("utilisation", CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a GPU")
def test_utilisation_asks_the_gpu() -> None:
    by = policy("utilisation", torch.device("cuda"))
    by.observe(Call(1, 4, Stats(1, 1, 1, 1, 2), 1.0))
    assert abs(by.choose(1) - 4) <= 1


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(StreamTppError, match="'fastest'"):
        policy("fastest", CPU)


class Recorded:
    """Draws lengths from a list, and keeps what it is told."""

    def __init__(self, lengths: Iterator[int]) -> None:
        self.lengths, self.calls = lengths, list[Call]()

    def choose(self, rows: int) -> int:
        return next(self.lengths)

    def observe(self, call: Call) -> None:
        self.calls.append(call)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    target = TargetConfig(types=3, layers=2, heads=4, d_model=32, components=4, time_scale=3600.0)
    return Model.fresh(ModelConfig(target, DraftConfig(d_model=16, components=4)), tuple("abc"), GapScale(8.0, 1.5, 1.0), 64)


def test_a_call_is_sampled_at_the_chosen_length_and_reported(model: Model) -> None:
    histories = [History(1e9 + np.arange(5) * 900.0, np.zeros(5, np.int64))] * 2
    by = Recorded(iter([0, 3]))
    for gamma in (0, 3):
        chosen = model.sample(histories, max_events=8, paths=3, seed=5, draft_length=by, backend="eager")
        given = model.sample(histories, max_events=8, paths=3, seed=5, draft_length=gamma, backend="eager")
        assert torch.equal(chosen.times, given.times)
    assert [(one.rows, one.draft_length) for one in by.calls] == [(6, 0), (6, 3)]
    assert by.calls[0].stats.drafted == 0 < by.calls[1].stats.drafted
    assert all(one.seconds > 0 for one in by.calls)


def test_a_name_is_no_policy_that_could_learn_from_call_to_call(model: Model) -> None:
    with pytest.raises(StreamTppError, match="kept from call to call"):
        model.sample([History()], now=0.0, max_events=1, draft_length="throughput")  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [-1, 65])
def test_a_length_that_no_one_can_mean_is_refused(model: Model, length: int) -> None:
    with pytest.raises(StreamTppError, match="to 64"):
        model.sample([History()], now=0.0, max_events=1, draft_length=length)
