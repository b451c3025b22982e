"""Every draft knows the law that it drew from, and forgets what was not accepted."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.config import DraftConfig, DraftName, HeadName, ModelConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.model.drafts.poisson import Counted, PoissonDraft
from stream_tpp.model.histories import Histories
from stream_tpp.model.target import Target

TYPES, PATHS, GAMMA = 5, 3, 4
SCALE = GapScale(0.3, 1.7, 1e-9)
TARGET = TargetConfig(TYPES, layers=2, d_model=32, feedforward=64, components=4, cycles=(86_400.0,))
every_draft = pytest.mark.parametrize("kind", [f"{kind}, {head}" for kind in get_args(DraftName) for head in get_args(HeadName)])


def models(kind: str, head: str = "mixture") -> tuple[Target, NeuralDraft[Any]]:
    torch.manual_seed(0)
    kind, _, other = kind.partition(", ")
    draft = DraftConfig(kind, d_model=16, components=3)  # type: ignore[arg-type]
    config = replace(TARGET, head=other or head, bins=8)
    target = Target(config).eval()
    return target, build_draft(ModelConfig(config, draft), target, SCALE).eval()


def sequences(lengths: list[int], size: int) -> Histories:
    random = torch.Generator().manual_seed(0)
    shape = len(lengths), size
    gaps = torch.rand(shape, generator=random, dtype=torch.float64) * 1000
    gaps[:, 0] = 0
    types = torch.randint(0, TYPES, shape, generator=random)
    types[:, 0] = TYPES
    y = SCALE.to_y(gaps)
    y[:, 0] = 0
    times = 1.7e9 + gaps.cumsum(-1)
    return Histories(Block(y, types, times, times[:, :1].expand_as(times)), torch.tensor(lengths))


def uniforms(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def parameters(law: Any) -> Tensor:
    if isinstance(law, BinnedLaw):
        return law.log_tokens.flatten(-2)
    assert isinstance(law, MixtureLaw)
    return torch.cat([law.log_weights, law.locs, law.log_scales, law.log_types], -1)


def pending_of(histories: Histories) -> Block:
    return histories.last.map(lambda t: t[:, None].expand(-1, PATHS, -1))


@every_draft
@torch.inference_mode()
def test_a_rollout_draws_from_the_law_it_reports(kind: str) -> None:
    target, draft = models(kind)
    histories = sequences([6, 1, 9], 9)
    _, hidden = target.prefill(histories, PATHS)
    u = uniforms(3, PATHS, GAMMA, 3)
    rollout = draft.rollout(draft.begin(histories, hidden), pending_of(histories), u, SCALE, None, None)
    y, types = rollout.law.sample(u)
    torch.testing.assert_close(rollout.block.y, y)
    assert torch.equal(rollout.block.types, types)
    gaps = torch.cat([pending_of(histories).times, rollout.block.times], -1).diff(dim=-1)
    torch.testing.assert_close(gaps, SCALE.to_gap(y), atol=1e-6, rtol=1e-6)


@every_draft
@torch.inference_mode()
def test_the_first_drafted_gap_outlasts_the_quiet_time_and_only_it(kind: str) -> None:
    target, draft = models(kind)
    histories = sequences([6, 1, 9], 9)
    _, hidden = target.prefill(histories, PATHS)
    u, quiet = uniforms(3, PATHS, GAMMA, 3), torch.full((3, PATHS), 4.0, dtype=torch.float64)
    quiet[1] = -torch.inf
    state, pending = draft.begin(histories, hidden), pending_of(histories)
    rollout, free = (draft.rollout(state, pending, u, SCALE, elapsed, None) for elapsed in (quiet, None))
    assert (rollout.block.y[0, :, 0] > 4.0).all()
    assert not (rollout.block.y[..., 1:] > 4.0).all()
    unknown, known = (law.log_prob_gap(free.block.y)[..., 0] for law in (rollout.law, free.law))
    torch.testing.assert_close(unknown[1], known[1])
    assert (unknown[0] == -torch.inf).equal(free.block.y[0, :, 0] < 4.0)


@every_draft
@torch.inference_mode()
def test_suppressed_types_are_never_drafted(kind: str) -> None:
    target, draft = models(kind)
    histories = sequences([6, 1, 9], 9)
    _, hidden = target.prefill(histories, 50)
    permitted = torch.tensor([False, True, False, True, False])
    pending = histories.last.map(lambda t: t[:, None].expand(-1, 50, -1))
    u = uniforms(3, 50, GAMMA, 3)
    rollout = draft.rollout(draft.begin(histories, hidden), pending, u, SCALE, None, permitted)
    assert permitted[rollout.block.types].all()
    assert torch.isfinite(rollout.law.log_prob(rollout.block.y, rollout.block.types)).all()


@every_draft
@torch.inference_mode()
def test_after_commit_the_draft_is_as_if_it_had_read_what_stood(kind: str) -> None:
    """Accepted events and the one after them become history; the next rollout is that of a draft begun on it."""
    target, draft = models(kind)
    whole = sequences([6, 6, 6], 14)
    history = Histories(whole.block, torch.tensor([6, 6, 6]))
    cache, hidden = target.prefill(history, PATHS)
    state = draft.begin(history, hidden)
    u = uniforms(3, PATHS, GAMMA, 3)
    for accepted in (2, 0, GAMMA, 1):
        pending = pending_of(history)
        rollout = draft.rollout(state, pending, u, SCALE, None, None)
        _, hidden = target.extend(cache, pending.followed_by(rollout.block))
        count = torch.full((3, PATHS), accepted)
        state = draft.commit(rollout, count, hidden)
        cache.keep(count + 1)
        # All paths share u, so path 0 stands for all of them; the event after the accepted ones comes from `whole`.
        rollout_row = rollout.block.map(lambda t: t[:, 0])
        after = whole.block.map(lambda t: t[:, 8:9])
        gap = SCALE.to_gap(after.y)
        block = history.block.map(lambda t: t[:, : history.lengths[0]])  # noqa: B023
        last = rollout_row.times[:, accepted - 1 : accepted] if accepted else block.times[:, -1:]
        next_event = Block(after.y, after.types, last + gap, after.origin)
        grown = block.followed_by(rollout_row.map(lambda t: t[:, :accepted])).followed_by(next_event)  # noqa: B023
        history = Histories(grown, torch.full((3,), grown.y.shape[1]))
        _, fresh_hidden = target.prefill(history, PATHS)
        fresh = draft.rollout(draft.begin(history, fresh_hidden), pending_of(history), u, SCALE, None, None)
        ours = draft.rollout(state, pending_of(history), u, SCALE, None, None)
        torch.testing.assert_close(parameters(ours.law)[:, 0], parameters(fresh.law)[:, 0], atol=1e-4, rtol=1e-3)


@every_draft
@torch.inference_mode()
def test_training_sees_the_laws_that_sampling_draws_from(kind: str) -> None:
    target, draft = models(kind)
    whole = sequences([12, 12], 12)
    _, hidden = target(whole.block)
    law, place, _ = draft.taught(whole.block, hidden, GAMMA)
    assert int(place.max()) == 11
    for anchor in (0, 3, place.shape[0] - 1):
        history = Histories(whole.block, torch.full((2,), int(place[anchor, 0]) + 1))
        _, before = target.prefill(history, PATHS)
        u = uniforms(2, PATHS, 1, 3)
        rollout = draft.rollout(draft.begin(history, before), pending_of(history), u, SCALE, None, None)
        torch.testing.assert_close(parameters(rollout.law)[:, 0, 0], parameters(law)[:, anchor, 0], atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_some_anchors_teach_what_they_teach_among_all() -> None:
    target, draft = models("anchored")
    block = sequences([12, 12], 12).block
    _, hidden = target(block)
    everywhere, some = draft.taught(block, hidden, GAMMA), draft.taught(block, hidden, GAMMA, slice(1, None, GAMMA))
    assert some.place.flatten().tolist() == list(range(1, 9))
    torch.testing.assert_close(parameters(some.law), parameters(everywhere.law)[:, 1::GAMMA])


@every_draft
@torch.inference_mode()
def test_chosen_paths_go_on_as_before(kind: str) -> None:
    target, draft = models(kind)
    histories = sequences([6, 1, 9], 9)
    cache, hidden = target.prefill(histories, PATHS)
    u = uniforms(3, PATHS, GAMMA, 3)
    pending = pending_of(histories)
    rollout = draft.rollout(draft.begin(histories, hidden), pending, u, SCALE, None, None)
    _, hidden = target.extend(cache, pending.followed_by(rollout.block))
    state = draft.commit(rollout, torch.tensor([[0, 1, 2], [3, 4, 0], [1, 1, 1]]), hidden)
    paths = torch.tensor([[2, 0], [1, 2], [0, 1]])
    everything = draft.rollout(state, pending, u, SCALE, None, None)
    some_u = u.gather(1, paths[..., None, None].expand(-1, -1, GAMMA, 3))
    some = draft.rollout(draft.choose(state, paths), pending.map(lambda t: t[:, :2]), some_u, SCALE, None, None)
    for row in range(3):
        torch.testing.assert_close(some.block.y[row], everything.block.y[row, paths[row]], atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_the_poisson_draft_draws_exponential_gaps_at_the_rate_it_counted() -> None:
    target, draft = models("poisson")
    histories = sequences([9, 5, 2], 9)
    _, hidden = target.prefill(histories, PATHS)
    law = draft.rollout(draft.begin(histories, hidden), pending_of(histories), uniforms(3, PATHS, 1, 3), SCALE, None, None).law
    assert isinstance(law, MixtureLaw)
    for row, length in enumerate((9, 5, 2)):
        block = histories.block.map(lambda t: t[row, :length])  # noqa: B023
        rate = float(length / (block.times[-1] - block.times[0] + TARGET.time_scale))
        y = torch.linspace(-15, 15, 20_001, dtype=torch.float64)
        gaps = SCALE.to_gap(y)
        exact = rate * gaps * SCALE.log_std * torch.exp(-rate * gaps)
        ours = law.rows(torch.tensor([row]))._map(lambda t: t[:, 0], lambda t: t[:, 0]).log_prob_gap(y).exp()
        assert float(torch.minimum(exact, ours).sum() * (y[1] - y[0])) > 0.99
        counts = torch.bincount(block.types[1:], minlength=TYPES) + 1 / TYPES
        torch.testing.assert_close(law.log_types[row, 0, 0].exp(), counts.double() / counts.sum())


@torch.inference_mode()
@pytest.mark.parametrize("seconds", [1e-6, 1.0, 1e7])
def test_a_poisson_draft_of_a_binned_target_has_the_exponential_mass_in_each_bin(seconds: float) -> None:
    _, draft = models("poisson", "binned")
    assert isinstance(draft, PoissonDraft)
    assert draft.time is not None
    counts = torch.tensor([4.0, 0.0, 1.0, 2.0, 0.0], dtype=torch.float64)
    law = draft._law(Counted(counts, torch.tensor(seconds, dtype=torch.float64)))
    assert isinstance(law, BinnedLaw)
    gaps = np.concatenate([[0.0], SCALE.to_gap(draft.time.edges).numpy()])
    survival = stats.expon.sf(gaps, scale=(seconds + TARGET.time_scale) / 8)
    np.testing.assert_allclose(law.log_bins.exp().numpy(), survival - np.append(survival[1:], 0.0), rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(law.types().exp(), (counts + 0.2) / 8)
    quiet = law.given_elapsed(torch.tensor(9.0, dtype=torch.float64))
    assert float(quiet.log_bins.exp().sum()) == pytest.approx(1.0)


@torch.inference_mode()
def test_an_early_exit_keeps_no_weights_of_the_target_and_must_come_before_its_end() -> None:
    _, draft = models("early-exit")
    assert all(name.startswith(("norm.", "head.")) for name in draft.state_dict())
    with pytest.raises(StreamTppError, match="fewer"):
        build_draft(ModelConfig(TARGET, DraftConfig("early-exit", layers=2)), Target(TARGET), SCALE)


@pytest.mark.parametrize("head", get_args(HeadName))
@torch.inference_mode()
def test_an_anchored_draft_that_foresees_the_target_exactly_has_its_law(head: str) -> None:
    target, draft = models("anchored", head)
    assert isinstance(draft, AnchoredDraft)
    draft.adopt(target)
    law, hidden = target(sequences([8], 8).block)
    assert torch.equal(parameters(draft.head.law(draft.head(hidden))), parameters(law))
