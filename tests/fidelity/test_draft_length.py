"""A length that changes from batch to batch leaves the law, so long as it is chosen before the batch is drawn."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from stream_tpp.evaluation.paths import Paths
from stream_tpp.sampling.draft_length import Acceptance, Call, DraftLength, Throughput, sample_by
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan

from .test_modes import LEVEL, cases
from .toy import Toy, ToyDraft, ToyTarget
from .truth import Situation, departure

BATCHES, PATHS = 40, 24
TOY = Toy.random(1)
TARGET, DRAFT = ToyTarget(TOY), ToyDraft(TOY.disturbed(0.6, 7))


class Moody:
    """Drafts nine events after a batch that accepted more than usual, none after one that accepted less, then three."""

    def __init__(self) -> None:
        self.length = 3

    def choose(self, rows: int) -> int:
        return self.length

    def observe(self, call: Call) -> None:
        if self.length == 3:
            self.length = 9 if call.stats.acceptance > 0.5 else 0
        else:
            self.length = 3


def batches(plan: Plan, draw: Callable[[Situation, int], Futures]) -> Paths:
    """The paths of many small batches, one after another, as if drawn at once."""
    parts = [Paths.of_futures(draw(cases(plan, quiet=True), number), plan.horizon) for number in range(BATCHES)]
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
    return Paths(
        np.concatenate([part.leads for part in parts]),
        np.concatenate([part.types for part in parts]),
        np.concatenate([part.path + start for part, start in zip(parts, starts, strict=True)]),
        np.concatenate([part.strata for part in parts]),
        plan.horizon,
    )


@pytest.mark.parametrize("policy", [Moody, Acceptance, Throughput])
@pytest.mark.parametrize("plan", [Plan(PATHS, max_events=8), Plan(PATHS, horizon=10.0)], ids=["events", "horizon"])
def test_a_length_chosen_by_the_batches_before_leaves_the_law(plan: Plan, policy: Callable[[], DraftLength]) -> None:
    by, lengths = policy(), set[int]()

    def draw(situation: Situation, number: int) -> Futures:
        def run(plan: Plan) -> Futures:
            lengths.add(plan.draft_length)
            return replace(situation, plan=plan).simulate(TARGET, DRAFT, seed=number)

        return sample_by(by, situation.plan, PATHS * len(situation.histories), torch.device("cpu"), run)

    paths = batches(plan, draw)
    assert len(lengths) > 1
    assert departure(TOY, cases(plan, quiet=True), paths) > LEVEL


@pytest.mark.slow
def test_a_length_chosen_by_what_it_gave_is_found_out() -> None:
    """Planted: each batch is drawn at several lengths, and kept is what took the fewest passes."""
    plan = Plan(8, horizon=10.0)

    def cheapest(situation: Situation, number: int) -> Futures:
        drawn = [
            replace(situation, plan=replace(plan, draft_length=gamma)).simulate(TARGET, DRAFT, seed=number * 8 + gamma)
            for gamma in range(2, 8)
        ]
        return min(drawn, key=lambda futures: futures.stats.row_passes)

    assert departure(TOY, cases(plan, quiet=True), batches(plan, cheapest)) < LEVEL
