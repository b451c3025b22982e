"""The machine code against its reference: the same paths from the same random numbers, whatever the model and the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.fidelity import compare
from stream_tpp.evaluation.paths import Paths
from stream_tpp.history import History
from stream_tpp.kernels import residual, verification
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.quantiles import quantiles
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.sampling import reference
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.native import sampler as native
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.sampler import Backend, sample, sample_all

TYPES = 5
DAY = 86_400.0
SHAPES = {
    "thp": {"layers": 3},
    "thp, time2vec": {"layers": 2, "time_encoding": "time2vec"},
    "thp, cycles": {"layers": 2, "cycles": (DAY, 7 * DAY)},
    "thp, odd sizes": {"layers": 2, "heads": 3, "d_model": 42, "feedforward": 50, "components": 7},
    "sahp": {"layers": 3, "encoder": "sahp"},
    "attnhp": {"layers": 3, "encoder": "attnhp"},
    "attnhp, one layer": {"layers": 1, "encoder": "attnhp", "time_encoding": "time2vec"},
}
PERMITTED = torch.tensor([True, False, True, True, False])
PLANS = {
    "events": Plan(paths=24, max_events=30),
    "horizon": Plan(paths=24, horizon=2e5, max_events=40),
    "suppressed": Plan(paths=24, max_events=20, permitted=PERMITTED),
    "autoregression": Plan(paths=24, max_events=20, draft_length=0),
    "long drafts": Plan(paths=24, max_events=40, draft_length=17),
    "sequential": Plan(paths=24, max_events=20, mode="sequential"),
    "hierarchical": Plan(paths=24, max_events=20, mode="hierarchical", permitted=PERMITTED),
    "block": Plan(paths=24, max_events=20, draft_length=6, mode="block"),
    "block, suppressed, horizon": Plan(paths=24, horizon=2e5, max_events=40, mode="block", permitted=PERMITTED),
    "reanchored": Plan(paths=24, max_events=30, reanchor_interval=3),
    "few events": Plan(paths=48, max_events=5, draft_length=8),
    "block, few events": Plan(paths=48, max_events=5, draft_length=8, mode="block"),
}


def build(shape: str, draft_width: int = 16) -> Model:
    """A model whose draft is near enough to its target for both acceptance and rejection to occur."""
    torch.manual_seed(1)
    settings = {"heads": 4, "d_model": 32, "components": 4, "time_scale": 3600.0} | SHAPES[shape]
    config = ModelConfig(TargetConfig(types=TYPES, **settings), DraftConfig(d_model=draft_width))  # type: ignore[arg-type]
    model = Model.fresh(config, tuple("abcde"), GapScale(8.0, 1.5, 1.0), 64)
    model.draft.adopt(model.target)
    return model


def history(n: int) -> History:
    rng = np.random.default_rng(n)
    return History(1.37e9 + np.cumsum(rng.exponential(20_000, n)), rng.integers(0, TYPES, n))


HISTORIES = [history(n) for n in (40, 1, 64, 0, 17)]
NOW: list[float | None] = [float(h.times[-1]) + 4000.0 * i if len(h) else 1.37e9 for i, h in enumerate(HISTORIES)]


def futures(model: Model, plan: Plan, backend: Backend) -> Futures:
    return sample(
        model.target,
        model.draft,
        HISTORIES,
        plan,
        scale=model.scale,
        types=TYPES,
        window=model.window,
        seeds=list(range(len(HISTORIES))),
        now=NOW,
        backend=backend,
    )


def share_of_equal_paths(one: Futures, other: Futures, events: int = 10) -> float:
    """Paths whose first events are of the same types at the same times, to 1e-3.

    Rounding alone makes events differ by 2e-7, and now and then turns an acceptance over: from there the path is another one.
    """

    def begun(values: Tensor, filler: float) -> Tensor:
        return torch.nn.functional.pad(values, (0, events), value=filler)[..., :events]

    types = begun(one.types, -1) == begun(other.types, -1)
    leads = torch.isclose(begun(one.leads, torch.inf), begun(other.leads, torch.inf), rtol=1e-3, atol=1e-3)
    return float((types & leads).all(-1).double().mean())


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("plan", list(PLANS))
def test_the_paths_are_those_of_the_reference(shape: str, plan: str) -> None:
    model = build(shape)
    ours, theirs = futures(model, PLANS[plan], "native"), futures(model, PLANS[plan], "eager")
    assert share_of_equal_paths(ours, theirs, events=5) >= 0.99
    assert share_of_equal_paths(ours, theirs) >= 0.97
    assert torch.equal(ours.lengths > 0, theirs.lengths > 0)
    assert (ours.complete == theirs.complete).double().mean() >= 0.97
    torch.testing.assert_close(ours.next.types(), theirs.next.types(), atol=1e-5, rtol=1e-4)
    y = torch.linspace(-2, 3, len(HISTORIES), dtype=torch.float64)
    torch.testing.assert_close(ours.next.log_prob_gap(y), theirs.next.log_prob_gap(y), atol=1e-4, rtol=1e-4)
    if ours.log_permitted is not None and theirs.log_permitted is not None:
        torch.testing.assert_close(ours.log_permitted[..., :3], theirs.log_permitted[..., :3], atol=1e-4, rtol=1e-4)
    if PLANS[plan].draft_length:
        assert 0.15 < ours.stats.acceptance < 0.98
        assert abs(ours.stats.acceptance - theirs.stats.acceptance) < 0.02
        for name in ("drafted", "rejected"):
            assert abs(getattr(ours.stats, name) - getattr(theirs.stats, name)) <= 0.05 * theirs.stats.drafted
    assert abs(ours.stats.events - theirs.stats.events) <= 0.02 * theirs.stats.events


def _quiet_time_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "given", lambda p, y_elapsed, permitted: p)


def _bonus_for_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_target(part: residual.Part, p: verification.Law, *rest: object) -> tuple[Tensor, Tensor]:
        _, k, _, draws, rows = rest
        return part.draw(p, k, draws.bonus()[rows])  # type: ignore[attr-defined, arg-type, index]

    monkeypatch.setattr(verification, "residual", from_target)


def _all_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "accepted_prefix", lambda stands, limits: limits)


def _types_never_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "type_residual", lambda log_p, log_q: log_p)


def _residual_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = verification.residual

    def without_c(part: residual.Part, p: verification.Law, q: verification.Law, k: Tensor, log_c: Tensor, *rest: Any) -> Any:
        return right(part, p, q, k, torch.zeros_like(log_c), *rest)

    monkeypatch.setattr(verification, "residual", without_c)


def _all_but_the_last_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = verification.accepted_prefix
    monkeypatch.setattr(verification, "accepted_prefix", lambda stands, limits: (right(stands, limits) - 1).clamp(min=0))


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ("events", _quiet_time_forgotten),
        ("events", _bonus_for_residual),
        ("events", _all_accepted),
        ("events", _all_but_the_last_accepted),
        ("sequential", _types_never_judged),
        ("hierarchical", _types_never_judged),
        ("block", _residual_of_one),
    ],
)
def test_the_comparison_sees_a_sampler_that_is_wrong(
    plan: str, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("thp")
    ours = futures(model, PLANS[plan], "native")
    fault(monkeypatch)
    assert share_of_equal_paths(ours, futures(model, PLANS[plan], "eager")) < 0.9


HORIZON = 1e5
CUT_SHORT = Plan(paths=1500, horizon=HORIZON, max_events=5, draft_length=8)
"""Paths of which two in five end by max_events, the others by the horizon."""


@pytest.fixture(scope="module")
def event_by_event() -> Paths:
    """As many other paths, drawn by the reference."""
    plan = replace(CUT_SHORT, draft_length=0, first_path=CUT_SHORT.paths)
    return Paths.of_futures(futures(build("thp"), plan, "eager"), HORIZON)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("mode", verification.MODES)
def test_paths_that_draft_no_more_than_they_may_hold_keep_the_law(mode: str, backend: Backend, event_by_event: Paths) -> None:
    drawn = futures(build("thp"), replace(CUT_SHORT, mode=mode), backend)
    found = compare(Paths.of_futures(drawn, HORIZON), event_by_event, power=False)
    assert found.passed, found.tests


def _drafts_past_the_horizon_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    right, ends = reference._verify, torch.tensor(NOW, dtype=torch.float64) + HORIZON

    def verify(p: verification.Law, rollout: Any, limits: Tensor, draws: residual.Draws, mode: str) -> verification.Verdict:
        if rollout is not None:
            limits = torch.minimum(limits, (rollout.block.times <= ends[:, None, None]).sum(-1))
        return right(p, rollout, limits, draws, mode)

    monkeypatch.setattr(reference, "_verify", verify)


@pytest.mark.parametrize("fault", [_bonus_for_residual, _drafts_past_the_horizon_not_judged])
def test_the_law_is_lost_without_the_residual_and_by_a_limit_that_looks_at_what_was_drafted(
    fault: Callable[[pytest.MonkeyPatch], None], event_by_event: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    drawn = futures(build("thp"), CUT_SHORT, "eager")
    assert not compare(Paths.of_futures(drawn, HORIZON), event_by_event, power=False).passed


def test_the_paths_do_not_depend_on_the_number_of_threads() -> None:
    model, threads = build("sahp"), torch.get_num_threads()
    plan = replace(PLANS["events"], paths=37)
    try:
        results = []
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(futures(model, plan, "native"))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0].leads, results[1].leads)
    assert torch.equal(results[0].types, results[1].types)


def test_plans_asked_for_together_give_the_bits_of_each_alone() -> None:
    model, plans = build("thp"), [PLANS["horizon"], PLANS["suppressed"], replace(PLANS["horizon"], paths=7, draft_length=0)]
    seeds = [[plan + history for history in range(len(HISTORIES))] for plan in range(len(plans))]

    def asked(some: list[Plan], seeds: list[list[int]]) -> list[Futures]:
        parts = model.target, model.draft, HISTORIES, some
        return sample_all(*parts, scale=model.scale, types=TYPES, window=64, seeds=seeds, now=NOW, backend="native")

    for together, plan, of_plan in zip(asked(plans, seeds), plans, seeds, strict=True):
        (alone,) = asked([plan], [of_plan])
        assert torch.equal(together.leads, alone.leads)
        assert torch.equal(together.types, alone.types)
        assert together.stats == alone.stats


@pytest.mark.parametrize("shape", ["thp", "thp, odd sizes"])
def test_quantiles_of_the_next_gap_are_those_of_the_search(shape: str) -> None:
    levels = torch.tensor([1e-6, 0.01, 0.1, 0.5, 0.9, 0.99, 1 - 1e-6], dtype=torch.float64)
    law = futures(build(shape), PLANS["events"], "native").next
    for y_elapsed in (-torch.inf, -3.0, 0.5, 4.0, 60.0):
        given = law.given_elapsed(torch.full((len(HISTORIES),), y_elapsed, dtype=torch.float64))
        found, searched = given.quantile(levels), quantiles(given, levels)
        torch.testing.assert_close(found, searched, rtol=1e-11, atol=1e-11)
        for row in range(len(HISTORIES)):
            assert torch.equal(given.rows(torch.tensor([row])).quantile(levels)[0], found[row])


def test_weights_that_training_has_changed_are_read_again() -> None:
    model = build("thp")
    before = futures(model, PLANS["events"], "native")
    with torch.no_grad():
        model.target.head.locs.bias += 1.0  # type: ignore[union-attr, operator]
    assert share_of_equal_paths(before, futures(model, PLANS["events"], "native")) < 0.1
    assert share_of_equal_paths(futures(model, PLANS["events"], "native"), futures(model, PLANS["events"], "eager")) >= 0.97


def test_a_path_that_has_ended_leaves_its_place_to_the_next() -> None:
    """600 paths go through far fewer places: passes follow the events and not the longest path of each lot."""
    model = build("thp")
    plan = Plan(paths=600, horizon=2e5, draft_length=0)
    result = futures(model, plan, "native")
    rows = result.stats.row_passes / result.stats.target_passes
    longest = int(result.lengths.max())
    assert result.stats.target_passes < 0.6 * len(HISTORIES) * longest * 600 / native.ROWS_AT_ONCE
    assert rows > 0.9 * native.ROWS_AT_ONCE


def test_what_the_machine_code_can_not_sample_goes_to_the_reference_or_is_refused() -> None:
    torch.manual_seed(0)
    target = TargetConfig(types=TYPES, layers=2, heads=4, d_model=32, components=4)
    model = Model.fresh(ModelConfig(target, DraftConfig("lstm")), tuple("abcde"), GapScale(8.0, 1.5, 1.0), 64)
    plan = Plan(paths=2, max_events=2)
    assert not native.is_supported(model.target, model.draft, torch.device("cpu"))
    assert futures(model, plan, "auto").types.shape == (5, 2, 2)
    with pytest.raises(StreamTppError, match="eager"):
        futures(model, plan, "native")
