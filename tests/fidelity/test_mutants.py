"""Each known wrong way to sample is planted, and the check against the truth fails on it where the sound engine passes.

The list, and what each needs to be seen, is in the docstring of `tests.fidelity`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from stream_tpp.evaluation.fidelity import compare
from stream_tpp.kernels import verification
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.kernels.mixture import categorical
from stream_tpp.kernels.random import uniform
from stream_tpp.kernels.residual import GAP, Draws, Part, residual, type_residual
from stream_tpp.kernels.verification import MODES, Verdict
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout
from stream_tpp.sampling import reference
from stream_tpp.sampling.plan import Plan

from .test_truth import HISTORIES, QUIET
from .toy import Toy, ToyCache, ToyDraft, ToyTarget
from .truth import Situation, departure

PASSES, FAILS = 1e-3, 1e-8

TOY = Toy.random(1)
DRAFT = ToyDraft(TOY.disturbed(0.4, 7))
MANY_EVENTS = Plan(paths=350, max_events=20, draft_length=5)
"""21,000 events on three histories."""
FIRST_EVENTS = Plan(paths=3500, max_events=2, draft_length=5)
"""21,000 events, half of them the first after the quiet time."""


@dataclass(frozen=True)
class Planted:
    """Where one wrong variant is looked for. `truth` is the target's toy, whatever `target` was made into."""

    plan: Plan = MANY_EVENTS
    truth: Toy = TOY
    draft: ToyDraft = DRAFT

    def departure(self, target: ToyTarget | None = None, draft: ToyDraft | None = None) -> float:
        situation = Situation(HISTORIES, QUIET, self.plan)
        paths = situation.paths(target or ToyTarget(self.truth), draft or self.draft)
        assert len(paths.leads) >= 20_000
        return departure(self.truth, situation, paths)

    def in_mode(self, mode: str) -> Planted:
        return replace(self, plan=replace(self.plan, mode=mode))


JOINT = Planted()
SHORT = Planted(plan=replace(MANY_EVENTS, draft_length=1))
"""Where every other event is a bonus."""
FAR = Planted(draft=ToyDraft(TOY.disturbed(1.5, 7)))
"""Where both gap and type are often at fault."""


@pytest.mark.parametrize("mode", MODES)
def test_the_sound_engine_passes_where_the_variants_are_planted(mode: str) -> None:
    assert JOINT.in_mode(mode).departure() > PASSES
    assert replace(JOINT, plan=FIRST_EVENTS).in_mode(mode).departure() > PASSES
    for planted in (SHORT, FAR, rare_gap_missed(), rare_type_missed()):
        assert planted.in_mode(mode).departure() > PASSES


# What Algorithm 1 of the TPP-SD paper says when read literally, and what its public code does.


def both_from_residuals(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    verdict = verification.sequential(p, q, y, k, limits, draws)
    rows = (verdict.accepted < limits).nonzero()[:, 0]
    p_next, q_next = (law.rows(rows).at(verdict.accepted[rows]) for law in (p, q))
    log_c = torch.zeros(len(rows), dtype=torch.float64)
    verdict.y[rows], _ = residual(GAP, p_next, q_next, verdict.k[rows], log_c, draws, rows)
    types = type_residual(p_next.types_given_gap(verdict.y[rows]), q_next.types_given_gap(verdict.y[rows]))
    verdict.k[rows] = categorical(draws.bonus()[rows, 2], types)
    return verdict


def test_gap_and_type_both_from_residuals_whichever_was_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES, "sequential", both_from_residuals)
    assert JOINT.in_mode("sequential").departure() < FAILS


def whole_or_nothing(stands: Tensor, limits: Tensor) -> Tensor:
    """With its rejections counted along the batch of one, the code starts over at the first place after any rejection."""
    n = stands.shape[1]
    all_stand = (stands | (torch.arange(n) >= limits[:, None])).all(1)
    return torch.where(all_stand, limits, 0)


@pytest.mark.parametrize("mode", ["joint", "sequential", "hierarchical"])
def test_any_rejection_discards_the_accepted_prefix(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "accepted_prefix", whole_or_nothing)
    assert JOINT.in_mode(mode).departure() < FAILS


def rejection_of_the_whole_batch(stands: Tensor, limits: Tensor) -> Tensor:
    """Every row stops where the first row of the batch was rejected."""
    everywhere = (stands & (torch.arange(stands.shape[1]) < limits[:, None])).to(torch.int64).cumprod(1).sum(1)
    return torch.minimum(everywhere[:1].expand_as(limits), limits)


def test_one_row_decides_how_many_events_stand_in_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "accepted_prefix", rejection_of_the_whole_batch)
    assert JOINT.departure() < FAILS


def types_never_judged(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """The draft's law is taken to have the target's types, so that no type is ever rejected."""
    assert isinstance(p, MixtureLaw)
    assert isinstance(q, MixtureLaw)
    return verification.sequential(p, replace(q, log_types=p.first(y.shape[1]).log_types), y, k, limits, draws)


def test_types_are_never_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES, "sequential", types_never_judged)
    assert JOINT.in_mode("sequential").departure() < FAILS


class NewestIgnored(ToyTarget):
    def extend(self, cache: ToyCache, block: Block) -> tuple[Law, Tensor]:
        _, hidden = super().extend(cache, block)
        return self.toy.law(cache.along[..., :-1, :]), hidden


@pytest.mark.parametrize("gamma", [0, 5])
def test_the_newest_event_is_ignored(gamma: int) -> None:
    planted = replace(JOINT, plan=replace(MANY_EVENTS, draft_length=gamma))
    assert planted.departure(NewestIgnored(TOY)) < FAILS


class FutureLeaks(ToyTarget):
    """A mask that is not causal: the law at a place has seen the drafted event that it is to judge."""

    def extend(self, cache: ToyCache, block: Block) -> tuple[Law, Tensor]:
        _, hidden = super().extend(cache, block)
        return self.toy.law(torch.cat([cache.along[..., 2:, :], cache.along[..., -1:, :]], -2)), hidden


@pytest.mark.parametrize("mode", MODES)
def test_drafted_future_events_leak_into_the_law(mode: str) -> None:
    assert JOINT.in_mode(mode).departure(FutureLeaks(TOY)) < FAILS


class TypeZeroIsPadding(Toy):
    def step(self, state: Tensor, y: Tensor, types: Tensor) -> Tensor:
        return torch.where((types == 0)[..., None], state, super().step(state, y, types))


@pytest.mark.parametrize("gamma", [0, 5])
def test_events_of_type_0_are_masked_as_padding(gamma: int) -> None:
    masked = TypeZeroIsPadding(**{field.name: getattr(TOY, field.name) for field in fields(TOY)})
    planted = replace(JOINT, plan=replace(MANY_EVENTS, draft_length=gamma))
    assert planted.departure(ToyTarget(masked)) < FAILS


def rare_gap_missed() -> Planted:
    """A target that is its draft but for a rare event that the draft never proposes: overlap 0.98 at every place.

    All of the residual is that event, and it takes 50 tries on average to draw it.
    """
    toy = replace(
        Toy.random(3, components=2),
        weights=torch.tensor([[0.98, 0.02]], dtype=torch.float64).log().expand(4, 2),
        locs=torch.tensor([[-1.0, 5.0]], dtype=torch.float64).expand(4, 2),
        scales=torch.tensor([0.5, 0.5], dtype=torch.float64),
        pull=(0.2, 0.2),
    )
    draft = replace(toy, weights=torch.tensor([[0.0, -60.0]], dtype=torch.float64).expand(4, 2))
    return Planted(replace(MANY_EVENTS, paths=1000), toy, ToyDraft(draft))


def at_most_50_tries(part: Part, p: Law, q: Law, k: Tensor, log_c: Tensor, draws: Draws, rows: Tensor) -> tuple[Tensor, Tensor]:
    u = draws.residual(rows, part.numbers + 1, 0, 51)
    p_each, q_each = p.expand_tries(51), q.expand_tries(51)
    y, types = part.draw(p_each, k[:, None].expand(-1, 51), u[..., :-1])
    log_p = part.log_prob(p_each, y, types)
    kept = torch.log(u[..., -1]) > part.log_prob(q_each, y, types) - log_p - log_c[:, None]
    kept[:, 50] = True  # the last is a plain draw from p
    winner = kept.to(torch.int8).argmax(1, keepdim=True)
    return y.gather(1, winner)[:, 0], types.gather(1, winner)[:, 0]


@pytest.mark.parametrize("mode", MODES)
def test_the_residual_is_given_up_after_50_tries(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "residual", at_most_50_tries)
    assert rare_gap_missed().in_mode(mode).departure() < FAILS


# What a user's `evaluate fidelity` sees, which knows no formula: speculative against autoregressive samples.


@pytest.mark.parametrize(
    ("mode", "where", "name", "variant"),
    [
        ("sequential", MODES, "sequential", both_from_residuals),
        ("sequential", MODES, "sequential", types_never_judged),
        ("joint", verification, "accepted_prefix", whole_or_nothing),
        ("joint", verification, "accepted_prefix", rejection_of_the_whole_batch),
    ],
)
def test_the_two_sample_comparison_finds_wrong_verification(
    mode: str, where: Any, name: str, variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation = Situation(HISTORIES, QUIET, replace(MANY_EVENTS, max_events=None, horizon=15.0, mode=mode))
    plain = replace(situation, plan=replace(situation.plan, draft_length=0))
    autoregressive = plain.paths(ToyTarget(TOY), FAR.draft, seed=2)
    assert compare(situation.paths(ToyTarget(TOY), FAR.draft, seed=1), autoregressive, power=False).passed
    if isinstance(where, dict):
        monkeypatch.setitem(where, name, variant)
    else:
        monkeypatch.setattr(where, name, variant)
    assert not compare(situation.paths(ToyTarget(TOY), FAR.draft, seed=1), autoregressive, power=False).passed


# A sketch of speculative sampling that goes around.


@pytest.mark.parametrize("mode", MODES)
def test_log_ratios_are_compared_with_numbers_that_are_not_logs(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draws, "accept", lambda self, n: uniform(self.keys, self.round, 1, n))
    assert JOINT.in_mode(mode).departure() < FAILS


def first_zero(stands: Tensor, limits: Tensor) -> Tensor:
    return (stands & (torch.arange(stands.shape[1]) < limits[:, None])).to(torch.int64).cumprod(1).argmin(1)


@pytest.mark.parametrize("mode", ["joint", "sequential", "hierarchical"])
def test_argmin_finds_nothing_accepted_where_everything_was(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "accepted_prefix", first_zero)
    planted = replace(JOINT, draft=ToyDraft(TOY.disturbed(0.1, 7))).in_mode(mode)
    assert planted.departure() < FAILS


# The quiet time.


class StatesWrongLaw(ToyDraft):
    """Draws gaps above the quiet time, but states the density of gaps of any length."""

    def rollout(
        self, state: Tensor, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        rollout = super().rollout(state, pending, u, scale, y_elapsed, permitted)
        return replace(rollout, law=self.toy.law(rollout.state[:, :, :-1]))


class Impatient(ToyDraft):
    """Knows nothing of the quiet time."""

    def rollout(
        self, state: Tensor, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        return super().rollout(state, pending, u, scale, None, permitted)


FIRST = replace(JOINT, plan=FIRST_EVENTS)


def not_truncated(given: Callable[[Law, Tensor | None, Tensor | None], Law]) -> Callable[..., Law]:
    return lambda p, y_elapsed, permitted: given(p, None, permitted)


@pytest.mark.parametrize("mode", MODES)
def test_the_target_is_not_truncated_at_the_quiet_time(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "given", not_truncated(reference.given))
    assert FIRST.in_mode(mode).departure() < FAILS


@pytest.mark.parametrize("mode", MODES)
def test_the_drafts_density_is_not_truncated_at_the_quiet_time(mode: str) -> None:
    assert FIRST.in_mode(mode).departure(draft=StatesWrongLaw(DRAFT.toy)) < FAILS


@pytest.mark.parametrize("gamma", [0, 5])
def test_neither_is_truncated_at_the_quiet_time(gamma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "given", not_truncated(reference.given))
    planted = replace(FIRST, plan=replace(FIRST_EVENTS, draft_length=gamma))
    assert planted.departure(draft=Impatient(DRAFT.toy)) < FAILS


# The event after the accepted ones, and the rollback.


@dataclass(frozen=True)
class BonusFromDraft(ToyTarget):
    """The law at the last place, where the bonus event is drawn, is the draft's."""

    other: Toy

    def extend(self, cache: ToyCache, block: Block) -> tuple[Law, Tensor]:
        _, hidden = super().extend(cache, block)
        own, other = self.toy.parts(cache.along[..., 1:, :]), self.other.parts(cache.along[..., 1:, :])
        last = torch.arange(block.y.shape[-1]) == block.y.shape[-1] - 1
        mixed = [
            torch.where(last.reshape(-1, *[1] * (a.dim() - hidden.dim() + 1)), b, a) for a, b in zip(own, other, strict=True)
        ]
        return MixtureLaw(mixed[0], mixed[1], mixed[2].log(), mixed[3][..., 0, :]), hidden


@pytest.mark.parametrize("mode", MODES)
def test_the_bonus_is_drawn_from_the_draft(mode: str) -> None:
    assert SHORT.in_mode(mode).departure(BonusFromDraft(TOY, DRAFT.toy)) < FAILS


def plain_draw(part: Part, p: Law, q: Law, k: Tensor, log_c: Tensor, draws: Draws, rows: Tensor) -> tuple[Tensor, Tensor]:
    y, types = part.draw(p.expand_tries(1), k[:, None], draws.residual(rows, part.numbers, 0, 1))
    return y[:, 0], types[:, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_rejected_event_is_drawn_from_the_target_instead_of_the_residual(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "residual", plain_draw)
    assert JOINT.in_mode(mode).departure() < FAILS


class NeverRolledBack(ToyCache):
    def keep(self, added: Tensor) -> None:
        self.state = self.along[..., -1, :]


class KeepsAll(ToyTarget):
    def prefill(self, histories: Histories, paths: int) -> tuple[ToyCache, Tensor]:
        cache, hidden = super().prefill(histories, paths)
        return NeverRolledBack(cache.state), hidden


@pytest.mark.parametrize("mode", MODES)
def test_the_cache_keeps_rejected_events(mode: str) -> None:
    assert JOINT.in_mode(mode).departure(KeepsAll(TOY)) < FAILS


# What the finer modes add.


@pytest.mark.parametrize("mode", ["sequential", "hierarchical"])
def test_gap_and_type_are_judged_by_one_number(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(draws: Draws, n: int) -> Tensor:
        return torch.log(uniform(draws.keys, draws.round, 1, n // 2)).repeat(1, 2)

    monkeypatch.setattr(Draws, "accept", twice)
    assert FAR.in_mode(mode).departure() < FAILS


def rare_type_missed() -> Planted:
    """Types with p / q = 100, 2 and 0.4: after a drafted type 2, what is left of c p - q is type 0 alone, of p - q it is not."""
    toy = replace(Toy.random(4), types_before=torch.zeros(4, 3, dtype=torch.float64))

    def with_types(*shares: float) -> Toy:
        return replace(toy, types=torch.tensor(shares, dtype=torch.float64).log().expand(4, 3, 3))

    return Planted(truth=with_types(0.1, 0.6, 0.3), draft=ToyDraft(with_types(0.001, 0.3, 0.699)))


def test_block_draws_the_residual_of_token_by_token_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    def unweighted(part: Part, p: Law, q: Law, k: Tensor, log_c: Tensor, draws: Draws, rows: Tensor) -> tuple[Tensor, Tensor]:
        return residual(part, p, q, k, torch.zeros_like(log_c), draws, rows)

    monkeypatch.setattr(verification, "residual", unweighted)
    assert rare_type_missed().in_mode("block").departure() < FAILS


def test_block_settles_open_places_by_token_by_token_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_ratio_alone(p: Law, q: Law, log_c: Tensor, stands: Tensor, open_places: Tensor, draws: Draws) -> Tensor:
        n = open_places.shape[1] - 1
        stands = stands | (open_places & (torch.nn.functional.pad(draws.accept(n), (1, 0)) < log_c))
        return torch.where(stands, torch.arange(n + 1), 0).amax(1)

    monkeypatch.setattr(verification, "_last_standing", by_ratio_alone)
    assert rare_type_missed().in_mode("block").departure() < FAILS
