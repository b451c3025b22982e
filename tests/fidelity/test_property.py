"""Any target, any draft, any draft length from 1 to 32, any batch: the law that comes out is the target's."""

from dataclasses import replace

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from stream_tpp.evaluation.paths import Paths
from stream_tpp.history import History
from stream_tpp.kernels.verification import MODES
from stream_tpp.sampling.plan import Plan

from .toy import Toy, ToyDraft, ToyTarget
from .truth import Situation, departure, history

LEVEL = 1e-7
"""Where one example fails: with a hundred of them a sound engine fails once in 100,000 runs."""


@some.composite
def histories(draw: some.DrawFn, types: int) -> tuple[tuple[History, ...], tuple[float | None, ...]]:
    """One to four histories of up to six events with gaps from 1e-9 to 1e6 seconds, some of them quiet since."""
    found, now = [], []
    for _ in range(draw(some.integers(1, 4))):
        gaps = draw(some.lists(some.sampled_from([0.0, 1e-9, 1e-3, 1.0, 30.0, 1e6]), max_size=6))
        kinds = draw(some.lists(some.integers(0, types - 1), min_size=len(gaps), max_size=len(gaps)))
        found.append(history(gaps, kinds))
        quiet = draw(some.sampled_from([None, 0.0, 0.5, 20.0]))
        now.append(None if quiet is None else sum(gaps) + quiet)
    return tuple(found), tuple(now)


@some.composite
def situations(draw: some.DrawFn) -> tuple[Toy, ToyDraft, Situation]:
    types, components = draw(some.integers(1, 5)), draw(some.integers(1, 4))
    toy = Toy.random(draw(some.integers(0, 10_000)), types, components, coupled=draw(some.booleans()))
    distance = 10 ** draw(some.floats(-2.5, 1.0))
    draft = ToyDraft(toy.disturbed(distance, draw(some.integers(0, 10_000))))
    past, now = draw(histories(types))
    plan = Plan(
        paths=3000 // (10 * len(past)),
        max_events=10,
        draft_length=draw(some.integers(1, 32)),
        mode=draw(some.sampled_from(sorted(MODES))),
        reanchor_interval=draw(some.sampled_from([None, 1, 7])),
    )
    if draw(some.booleans()):
        plan = replace(plan, max_events=None, horizon=draw(some.sampled_from([0.1, 2.0, 15.0])))
    return toy, draft, Situation(past, now, plan)


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(situations())
def test_the_law_of_the_output_is_the_targets(case: tuple[Toy, ToyDraft, Situation]) -> None:
    toy, draft, situation = case
    futures = situation.simulate(ToyTarget(toy), draft)
    assert not torch.isnan(futures.leads).any()
    paths = Paths.of_futures(futures, situation.plan.horizon)
    if len(paths.leads):
        assert departure(toy, situation, paths) > LEVEL
