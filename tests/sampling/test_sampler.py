"""Sampling with a network: what a caller may rely on. That the law is exact is shown in tests/fidelity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.residual import SamplingError
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.sampler import Backend, sample

TYPES = 4
EPOCH = 1.37e9
_backend: list[Backend] = ["auto"]


@pytest.fixture(params=["eager", "auto"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every promise holds for the reference and for the machine code."""
    _backend[:] = [request.param]
    yield
    _backend[:] = ["auto"]


def build(encoder: str = "thp", seed: int = 0) -> Model:
    torch.manual_seed(seed)
    target = TargetConfig(types=TYPES, encoder=encoder, layers=2, heads=4, d_model=32, components=4, time_scale=3600.0)  # type: ignore[arg-type]
    return Model.fresh(ModelConfig(target, DraftConfig(d_model=16, components=4)), tuple("abcd"), GapScale(8.0, 1.5, 1.0), 64)


def history(n: int, seed: int = 0) -> History:
    rng = np.random.default_rng(seed)
    return History(EPOCH + np.cumsum(rng.exponential(20_000, n)), rng.integers(0, TYPES, n))


def futures(
    model: Model, plan: Plan, histories: list[History], seeds: list[int], now: list[float | None] | None = None
) -> Futures:
    return sample(
        model.target,
        model.draft,
        histories,
        plan,
        scale=model.scale,
        types=TYPES,
        window=model.window,
        seeds=seeds,
        now=now or [None] * len(histories),
        backend=_backend[0],
    )


@pytest.mark.parametrize("encoder", ["thp", "sahp", "attnhp"])
@pytest.mark.parametrize(("paths", "draft_length", "max_events"), [(64, 4, 40), (3, 4, 40), (1, 8, 40), (3, 8, 5)])
def test_a_path_is_the_same_to_the_last_bit_whatever_shares_its_batch(
    encoder: str, paths: int, draft_length: int, max_events: int
) -> None:
    model = build(encoder)
    histories = [history(n, n) for n in (50, 3, 0, 64, 20, 100, 1)]
    now = [float(h.times[-1]) + 3000 * i if len(h) else EPOCH for i, h in enumerate(histories)]
    plan = Plan(paths=paths, horizon=100_000.0, max_events=max_events, draft_length=draft_length)
    together = futures(model, plan, histories, list(range(7)), now)
    for company in ([0], [3, 2], [5, 0, 1], [6], [6, 6, 4]):
        alone = futures(model, plan, [histories[i] for i in company], company, [now[i] for i in company])
        for row, i in enumerate(company):
            assert torch.equal(alone.lengths[row], together.lengths[i])
            n = int(alone.lengths[row].max())
            assert torch.equal(alone.leads[row, :, :n], together.leads[i, :, :n])
            assert torch.equal(alone.types[row, :, :n], together.types[i, :, :n])


def test_paths_added_later_continue_the_first_ones() -> None:
    model = build()
    whole = futures(model, Plan(paths=48, horizon=50_000.0), [history(9)], [7])
    rest = futures(model, Plan(paths=16, horizon=50_000.0, first_path=32), [history(9)], [7])
    n = rest.leads.shape[-1]
    assert torch.equal(whole.leads[:, 32:, :n], rest.leads)


def test_other_seeds_give_other_futures() -> None:
    model = build()
    plan = Plan(paths=8, max_events=5)
    first, second = (futures(model, plan, [history(9)], [seed]) for seed in (1, 2))
    assert not bool((first.leads == second.leads).any())


def test_a_path_ends_at_its_horizon_or_its_number_of_events_whichever_is_first() -> None:
    model = build()
    by_time = futures(model, Plan(paths=200, horizon=30_000.0), [history(9)], [0])
    assert bool(by_time.complete.all())
    inside = torch.isfinite(by_time.leads)
    assert bool((by_time.leads[inside] <= 30_000.0).all())
    assert torch.equal(inside.sum(-1), by_time.lengths)
    both = futures(model, Plan(paths=200, horizon=30_000.0, max_events=3), [history(9)], [0])
    assert int(both.lengths.max()) == 3
    assert torch.equal(both.complete, both.lengths < 3)
    by_count = futures(model, Plan(paths=20, max_events=7), [history(9)], [0])
    assert bool((by_count.lengths == 7).all())
    assert bool(by_count.complete.all())


@pytest.mark.parametrize("mode", ["joint", "sequential", "hierarchical", "block"])
@pytest.mark.parametrize("max_events", [1, 2, 3, 5, 9])
def test_no_round_drafts_more_than_its_path_may_still_hold(mode: str, max_events: int) -> None:
    paths = 100
    plan = Plan(paths=paths, max_events=max_events, draft_length=8, mode=mode)
    cost = futures(build(), plan, [history(9)], [0]).stats
    # What stands and the target's event after it all have room on the path.
    assert cost.accepted + cost.row_passes == cost.events == paths * max_events
    # The first round drafts one event fewer than the path may hold, each later one fewer than the one before it.
    assert paths * (max_events - 1) <= cost.drafted <= paths * max_events * (max_events - 1) / 2
    assert cost.accepted + cost.rejected <= cost.drafted


def test_times_follow_now_and_never_run_backwards() -> None:
    model, past = build(), history(20)
    now = float(past.times[-1]) + 100_000.0
    result = futures(model, Plan(paths=100, max_events=10), [past], [0], [now])
    assert bool((result.leads >= 0).all())
    assert bool((result.leads.diff(dim=-1) >= 0).all())
    assert torch.allclose(result.times, now + result.leads, rtol=0, atol=1e-6)


@pytest.mark.parametrize("draft_length", [0, 1, 4, 32])
def test_an_entity_never_seen_has_a_future(draft_length: int) -> None:
    plan = Plan(paths=5, horizon=1e5, draft_length=draft_length)
    result = futures(build(), plan, [History()], [0], [EPOCH])
    assert bool((result.times[torch.isfinite(result.times)] > EPOCH).all())
    assert int(result.types.max()) < TYPES


def test_suppressed_types_never_come_and_their_chance_is_kept() -> None:
    permitted = torch.tensor([True, False, True, False])
    result = futures(build(), Plan(paths=200, max_events=6, permitted=permitted), [history(9)], [0])
    assert set(result.types.unique().tolist()) <= {0, 2}
    assert result.log_permitted is not None
    assert bool((result.log_permitted < 0).all())


@pytest.mark.parametrize("mode", ["joint", "sequential", "hierarchical", "block"])
@pytest.mark.parametrize("spoiled", ["target", "draft"])
def test_a_model_that_gives_nan_is_an_error_not_a_hang(mode: str, spoiled: str) -> None:
    model = build()
    with torch.no_grad():
        for parameter in getattr(model, spoiled).parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(SamplingError, match="NaN"):
        futures(model, Plan(paths=2, max_events=30, mode=mode), [history(9)], [0])


def test_now_before_the_last_event_is_an_error_that_names_both() -> None:
    past = history(9)
    with pytest.raises(StreamTppError, match="after now"):
        futures(build(), Plan(paths=2, max_events=3), [past], [0], [float(past.times[-1]) - 1.0])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"horizon": -1.0},
        {"horizon": float("nan")},
        {"max_events": 0},
        {"max_events": 1, "draft_length": -1},
        {"max_events": 1, "mode": "greedy"},
        {"max_events": 1, "permitted": torch.zeros(TYPES, dtype=torch.bool)},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_one_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(StreamTppError):
        Plan(paths=1, **wrong)  # type: ignore[arg-type]


def test_events_that_share_a_time_and_gaps_of_any_size_give_finite_futures() -> None:
    model = build()
    for times in ([EPOCH] * 9, [0.0, 1e-9, 2e-9], [0.0, 1e9, 2e9], [-1e9, 0.0, 1e-9]):
        past = History(np.array(times), np.zeros(len(times), dtype=np.int64))
        result = futures(model, Plan(paths=16, max_events=20), [past], [0])
        assert bool(torch.isfinite(result.leads).all())


@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_gaps_of_a_nanosecond_and_of_thirty_years_are_drawn_as_exactly_as_any(seconds: float) -> None:
    """At 1.4e9 seconds float64 tells times 2e-7 apart: leads must not go through them. Only the unit differs between the two."""
    model, unit = build(), replace(build(), scale=GapScale(0.0, 1.5, 1e-3))
    model.scale = GapScale(float(np.log(seconds)), 1.5, 1e-3 * seconds)
    plan = Plan(paths=500, max_events=1)
    last = History(np.array([EPOCH]), np.array([1]))
    scaled, plain = (futures(one, plan, [last], [0]).leads for one in (model, unit))
    np.testing.assert_allclose(scaled.numpy() / seconds, plain.numpy(), rtol=1e-9)
    assert len(scaled.unique()) == 500
    many = futures(model, Plan(paths=50, max_events=20), [last], [0]).leads
    assert bool((many.diff(dim=-1) > 0).all())
    assert bool(torch.isfinite(many).all())


@pytest.mark.parametrize("n", [63, 64, 65, 66, 200])
def test_a_history_at_the_limit_of_the_window_is_its_latest_events(n: int) -> None:
    """BOS stands on the event before them, so 65 events and their last 64 differ in nothing."""
    model, whole = build(), history(n)
    kept = History(whole.times[-64:], whole.types[-64:], float(whole.times[-65]) if n > 64 else None)
    plan = Plan(paths=16, max_events=10)
    ours, theirs = (futures(model, plan, [past], [3]) for past in (whole, kept))
    assert torch.equal(ours.leads, theirs.leads)
    assert torch.equal(ours.types, theirs.types)
    if n > 65:
        longer = futures(replace(model, window=65), plan, [whole], [3])
        assert not torch.equal(longer.leads, ours.leads)


def test_ties_count_as_the_floor() -> None:
    model, kinds = build(), np.array([0, 1, 2])
    tied, apart = (History(EPOCH + np.array(steps), kinds, EPOCH) for steps in ([5.0, 5.0, 5.0], [5.0, 5.5, 5.9]))
    laws = [model.law([past]) for past in (tied, apart)]
    assert model.scale.floor == 1.0
    torch.testing.assert_close(laws[0].types(), laws[1].types(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [-1, TYPES, TYPES + 1])
def test_a_type_that_the_model_was_not_trained_on_is_refused_by_number(kind: int) -> None:
    """TYPES itself is the number that BOS has inside."""
    strange = History(np.array([EPOCH, EPOCH + 1.0]), np.array([0, kind]))
    for gamma in (0, 4):
        with pytest.raises(StreamTppError, match=rf"History 1 has an event of type number {kind}, and the model knows {TYPES}"):
            futures(build(), Plan(paths=2, max_events=2, draft_length=gamma), [history(3), strange], [0, 1])


@pytest.mark.parametrize("mode", ["joint", "sequential", "hierarchical", "block"])
@pytest.mark.parametrize("encoder", ["thp", "sahp", "attnhp"])
@pytest.mark.parametrize("shift", [-500.0, 500.0])
def test_a_draft_that_proposes_impossible_gaps_costs_acceptance_alone(encoder: str, mode: str, shift: float) -> None:
    """e^750 seconds is no float64: what the caches keep of such events must not reach those that follow."""
    model, plan = build(encoder), Plan(paths=300, max_events=6, mode=mode)
    model.draft.head.locs.bias.data += shift  # type: ignore[union-attr, operator]
    speculative = futures(model, plan, [history(9)], [0])
    plain = futures(model, replace(plan, draft_length=0), [history(9)], [1])
    assert speculative.stats.acceptance < 0.01
    for place in (0, 5):
        gaps = [result.leads[0].diff(dim=-1, prepend=torch.zeros(300, 1))[:, place].numpy() for result in (speculative, plain)]
        assert stats.ks_2samp(*gaps).pvalue > 1e-4


def test_reanchoring_bounds_the_run_without_a_draw_from_the_target() -> None:
    model = build()
    often = futures(model, Plan(paths=64, max_events=60, draft_length=4, reanchor_interval=2), [history(9)], [0])
    seldom = futures(model, Plan(paths=64, max_events=60, draft_length=4, reanchor_interval=1000), [history(9)], [0])
    assert often.stats.row_passes > seldom.stats.row_passes
