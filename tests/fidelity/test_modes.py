"""Whatever the draft, the sampler's law is the target's: every mode, draft length, overlap, batch, elapsed time and end.

Each case is held against the truth at 20,000 events or more. `LEVEL` is where a single case fails; seeds are fixed.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stream_tpp.evaluation.fidelity import compare
from stream_tpp.evaluation.paths import Paths
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.verification import MODES
from stream_tpp.model.protocols import Rollout
from stream_tpp.sampling.plan import Plan

from .test_truth import HISTORIES, QUIET
from .toy import Toy, ToyDraft, ToyTarget
from .truth import Situation, departure, directly

LEVEL = 1e-4
NOW = (None, None, None)
OVERLAP = {"heavy": 0.03, "middling": 0.6, "nearly none": 5.0}
LENGTHS = Plan(paths=350, max_events=20)
HORIZON = Plan(paths=500, horizon=15.0)


def cases(plan: Plan, quiet: bool) -> Situation:
    return Situation(HISTORIES, QUIET if quiet else NOW, plan)


@pytest.mark.parametrize("gamma", [1, *(pytest.param(gamma, marks=pytest.mark.slow) for gamma in (2, 5, 16))])
@pytest.mark.parametrize("overlap", OVERLAP)
@pytest.mark.parametrize("mode", MODES)
def test_sampled_paths_follow_the_targets_law(mode: str, overlap: str, gamma: int) -> None:
    toy = Toy.random(1)
    situation = cases(replace(LENGTHS, draft_length=gamma, mode=mode), quiet=True)
    paths = situation.paths(ToyTarget(toy), ToyDraft(toy.disturbed(OVERLAP[overlap], 7)))
    assert len(paths.leads) >= 20_000
    assert departure(toy, situation, paths) > LEVEL


@pytest.mark.parametrize("overlap", OVERLAP)
@pytest.mark.parametrize("mode", MODES)
def test_types_that_depend_on_their_gaps_stay_with_them(mode: str, overlap: str) -> None:
    toy = Toy.random(2, coupled=True)
    situation = cases(replace(LENGTHS, draft_length=4, mode=mode), quiet=True)
    paths = situation.paths(ToyTarget(toy), ToyDraft(toy.disturbed(OVERLAP[overlap], 8)))
    assert departure(toy, situation, paths) > LEVEL


@pytest.mark.parametrize("gamma", [0, 9])
@pytest.mark.parametrize("mode", MODES)
def test_a_horizon_inside_a_round_cuts_paths_without_changing_their_law(mode: str, gamma: int) -> None:
    toy = Toy.random(3)
    situation = cases(replace(HORIZON, draft_length=gamma, mode=mode), quiet=True)
    paths = situation.paths(ToyTarget(toy), ToyDraft(toy.disturbed(0.4, 9)))
    assert departure(toy, situation, paths) > LEVEL


@pytest.mark.parametrize("mode", MODES)
def test_speculative_autoregressive_and_direct_samples_are_of_one_law(mode: str) -> None:
    """The two-sample comparison that a user runs, counts and their autocorrelation included, with no formula of the law."""
    toy = Toy.random(4)
    target, draft = ToyTarget(toy), ToyDraft(toy.disturbed(0.5, 10))
    situation = cases(replace(HORIZON, paths=500, draft_length=5, mode=mode), quiet=False)
    plain = replace(situation, plan=replace(situation.plan, draft_length=0))
    speculative, autoregressive = situation.paths(target, draft, seed=1), plain.paths(target, draft, seed=2)
    assert min(len(speculative.leads), len(autoregressive.leads)) >= 20_000
    for other in (autoregressive, directly(toy, situation, 3)):
        found = compare(speculative, other, permutations=999)
        assert found.passed, found.tests
        assert max(found.js_divergence.values()) < 0.002
        assert {test.name: test.detectable for test in found.tests}["gap_ks"] < 0.03


@pytest.mark.parametrize("mode", MODES)
def test_a_draft_that_has_nothing_in_common_with_the_target_leaves_its_law(mode: str) -> None:
    toy = Toy.random(1)
    situation = cases(replace(LENGTHS, draft_length=4, mode=mode), quiet=True)
    futures = situation.simulate(ToyTarget(toy), ToyDraft(toy.disturbed(60.0, 7)))
    assert futures.stats.acceptance < 1e-3
    assert departure(toy, situation, Paths.of_futures(futures, None)) > LEVEL


@pytest.mark.parametrize("mode", MODES)
def test_a_draft_that_is_the_target_but_for_a_hair_is_rejected_now_and_then_and_no_residual_runs_on(mode: str) -> None:
    """Where a ten-thousandth of the law is left over, a draw from it takes ten thousand tries."""
    toy = Toy.random(1)
    situation = cases(replace(LENGTHS, paths=1000, draft_length=6, mode=mode), quiet=True)
    futures = situation.simulate(ToyTarget(toy), ToyDraft(toy.disturbed(2e-4, 7)))
    assert 0.99 < futures.stats.acceptance < 1
    assert departure(toy, situation, Paths.of_futures(futures, None)) > LEVEL


def test_rows_of_a_batch_accept_different_numbers_of_events() -> None:
    """The cases above would mean little if all rows of a batch moved in step."""
    toy = Toy.random(1)
    alone = [
        Situation((one,), (now,), replace(LENGTHS, draft_length=5)).simulate(ToyTarget(toy), ToyDraft(toy.disturbed(0.6, 7)))
        for one, now in zip(HISTORIES, QUIET, strict=True)
    ]
    assert len({futures.stats.target_passes for futures in alone}) > 1
    together = cases(replace(LENGTHS, draft_length=5), quiet=True).simulate(ToyTarget(toy), ToyDraft(toy.disturbed(0.6, 7)))
    assert 0.2 < together.stats.acceptance < 0.8


@pytest.mark.parametrize("mode", MODES)
def test_a_target_that_often_takes_over_changes_no_law(mode: str) -> None:
    toy = Toy.random(5)
    situation = cases(replace(LENGTHS, draft_length=4, mode=mode, reanchor_interval=3), quiet=False)
    paths = situation.paths(ToyTarget(toy), ToyDraft(toy.disturbed(0.3, 11)))
    assert departure(toy, situation, paths) > LEVEL


@pytest.mark.parametrize("mode", MODES)
def test_suppressed_types_leave_the_law_restricted_to_the_others(mode: str) -> None:
    toy = Toy.random(6)
    permitted = torch.tensor([True, False, True])
    situation = cases(replace(LENGTHS, draft_length=4, mode=mode, permitted=permitted), quiet=True)
    paths = situation.paths(ToyTarget(toy), ToyDraft(toy.disturbed(0.6, 12)))
    restricted = replace(toy, types=toy.types.masked_fill(~permitted, -torch.inf))
    assert set(paths.types.tolist()) == {0, 2}
    assert departure(restricted, situation, paths) > LEVEL


class Forgetful(ToyDraft):
    """Never takes in what was accepted."""

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Tensor:
        state: Tensor = rollout.state[:, :, 0]
        return state


class Impatient(ToyDraft):
    """Knows nothing of the quiet time, and says so in its law."""

    def rollout(
        self, state: Tensor, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        return super().rollout(state, pending, u, scale, None, permitted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("draft", [Forgetful, Impatient])
def test_a_draft_that_is_wrong_but_honest_costs_acceptance_alone(draft: type[ToyDraft], mode: str) -> None:
    toy = Toy.random(1)
    situation = cases(replace(LENGTHS, draft_length=4, mode=mode), quiet=True)
    paths = situation.paths(ToyTarget(toy), draft(toy.disturbed(0.3, 7)))
    assert departure(toy, situation, paths) > LEVEL


@pytest.mark.parametrize("mode", MODES)
def test_a_draft_equal_to_the_target_is_always_accepted(mode: str) -> None:
    toy = Toy.random(1)
    futures = cases(replace(LENGTHS, draft_length=6, mode=mode), quiet=True).simulate(ToyTarget(toy), ToyDraft(toy))
    assert futures.stats.acceptance > 0.999
    assert departure(toy, cases(LENGTHS, quiet=True), Paths.of_futures(futures, None)) > LEVEL
