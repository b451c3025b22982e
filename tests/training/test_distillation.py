"""Acceptance is the overlap of two laws, and distillation is what raises it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.kernels.random import uniform
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.bins import Bins
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.target import Target
from stream_tpp.training.data import Crops, Observed
from stream_tpp.training.distillation import acceptance, train_draft
from stream_tpp.training.optimise import Schedule
from stream_tpp.training.overlap import compare, gap_draws, overlap

SCALE = GapScale(0.0, 1.0, 1e-9)
CONFIG = ModelConfig(
    TargetConfig(3, layers=1, heads=2, d_model=16, feedforward=16, components=2), DraftConfig(d_model=16, components=2)
)


def law(weights: list[float], locs: list[float], scales: list[float], types: list[float]) -> MixtureLaw:
    logits = (torch.tensor([values], dtype=torch.float64).log() for values in (weights, scales, types))
    log_weights, log_scales, log_types = logits
    return MixtureLaw.from_logits(log_weights, torch.tensor([locs]), log_scales, log_types)


P = law([0.3, 0.7], [-1.0, 1.0], [0.5, 1.0], [0.2, 0.5, 0.3])


def test_a_law_covers_itself_and_nothing_of_one_elsewhere() -> None:
    y = gap_draws(P, 64, torch.Generator().manual_seed(0))
    assert float(overlap(P, P, y)) == pytest.approx(1.0)
    far = replace(P, locs=P.locs + 1e6)
    assert float(overlap(P, far, y)) == 0.0
    other_types = law([0.3, 0.7], [-1.0, 1.0], [0.5, 1.0], [0.5, 0.2, 0.3])
    assert float(overlap(P, other_types, y)) == pytest.approx(0.7)


def test_overlap_is_the_integral_of_the_smaller_density() -> None:
    q = law([0.6, 0.4], [-0.5, 2.0], [1.0, 0.4], [0.4, 0.4, 0.2])
    grid = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    kinds = torch.arange(3)[:, None]
    p_density, q_density = (one.log_prob(grid, kinds.expand(3, len(grid))).exp() for one in (spread(P, grid), spread(q, grid)))
    exact = float(torch.minimum(p_density, q_density).sum() * (grid[1] - grid[0]))
    y = gap_draws(P, 40_000, torch.Generator().manual_seed(0))
    assert float(overlap(P, q, y)) == pytest.approx(exact, abs=0.004)


def spread(one: MixtureLaw, grid: torch.Tensor) -> MixtureLaw:
    return MixtureLaw(*(t.expand(3, len(grid), -1) for t in (one.log_weights, one.locs, one.log_scales, one.log_types)))


def test_binned_laws_are_compared_token_by_token_without_draws() -> None:
    bins, random = Bins.of_normal(6), torch.Generator().manual_seed(0)
    p, q = (BinnedLaw.from_logits(torch.randn(2, 6, 3, generator=random), bins) for _ in range(2))
    found = compare(p, q, 1, random)
    ours, theirs = p.log_tokens.exp().numpy(), q.log_tokens.exp().numpy()
    np.testing.assert_allclose(found.overlap, np.minimum(ours, theirs).sum((-1, -2)))
    np.testing.assert_allclose(found.cross_entropy, -(ours * np.log(theirs)).sum((-1, -2)))
    y, k = p.expand_tries(40_000).sample(uniform(torch.arange(80_000).reshape(2, 40_000), 0, 0, 3))
    ratio = (q.expand_tries(40_000).log_prob(y, k) - p.expand_tries(40_000).log_prob(y, k)).exp()
    np.testing.assert_allclose(ratio.clamp(max=1.0).mean(-1), found.overlap, atol=0.01)


def test_a_density_ratio_beyond_every_float_leaves_the_gradient_finite() -> None:
    locs = torch.tensor([[30.0, 30.0]], requires_grad=True)
    q = MixtureLaw(P.log_weights, locs.to(torch.float64), torch.full((1, 2), -5.0, dtype=torch.float64), P.log_types)
    y = torch.full((4, 1), 30.0, dtype=torch.float64)
    (1 - overlap(P, q, y)).sum().backward()  # type: ignore[no-untyped-call]
    assert locs.grad is not None
    assert torch.isfinite(locs.grad).all()


def sequences(count: int, seed: int) -> list[Observed]:
    random = np.random.default_rng(seed)
    return [Observed(History(np.cumsum(random.exponential(1.0, 12)), random.integers(0, 3, 12))) for _ in range(count)]


def trained(distill: bool, epochs: int = 6) -> tuple[float, float, list[torch.Tensor]]:
    """Acceptance before and after training on a target with random weights, and the weights."""
    torch.manual_seed(0)
    target = Target(CONFIG.target).eval()
    with torch.no_grad():  # a law that depends strongly on the history
        target.head.types[2].weight.mul_(8)
    draft = build_draft(CONFIG, target, SCALE)
    train, validation = Crops(sequences(64, 0), SCALE, 3, 12, 16), Crops(sequences(16, 1), SCALE, 3, 12, 16)
    before = acceptance(draft, target, validation.judged(), steps=4)
    schedule = Schedule(epochs=epochs, learning_rate=1e-2)
    train_draft(draft, target, train, validation, schedule, seed=0, distill=distill, steps=4)
    return before, acceptance(draft, target, validation.judged(), steps=4), list(draft.parameters())


def test_distillation_raises_acceptance() -> None:
    before, after, _ = trained(distill=True)
    assert after > max(0.85, before + 0.15)


def test_a_draft_trained_on_the_data_alone_does_not_know_a_target_that_differs_from_them() -> None:
    assert trained(distill=False)[1] < trained(distill=True)[1] - 0.1


def test_the_same_seed_gives_the_same_draft() -> None:
    for one, other in zip(trained(True, 2)[2], trained(True, 2)[2], strict=True):
        assert torch.equal(one, other)


def test_acceptance_is_a_number_between_nothing_and_all() -> None:
    before, after, _ = trained(distill=True, epochs=1)
    assert 0 < before < 1
    assert 0 < after < 1
    assert not math.isclose(before, after)
