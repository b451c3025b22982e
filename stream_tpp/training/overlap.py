"""How much of the target's law a draft's law covers: the chance that a drafted event is accepted."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stream_tpp.kernels.law import Law, MixtureLaw
from stream_tpp.model.binned import BinnedLaw


class Comparison(NamedTuple):
    """Of target p and draft q at each place [...]: -E_p[log q], and the integral of min(p, q), over gap and type."""

    cross_entropy: Tensor
    overlap: Tensor


def compare(p: Law, q: Law, draws: int, generator: torch.Generator) -> Comparison:
    """Exact sums over the tokens of binned laws that share their bins, so many draws of the gap for mixtures.

    The cross-entropy of binned laws is that of their tokens. Gradients flow to q.
    """
    if isinstance(p, BinnedLaw) and isinstance(q, BinnedLaw):
        log_p, log_q = p.log_tokens, q.log_tokens
        chance = log_p.exp()
        return Comparison(-(chance * log_q).sum((-1, -2)), torch.minimum(chance, log_q.exp()).sum((-1, -2)))
    assert isinstance(p, MixtureLaw)
    assert isinstance(q, MixtureLaw)
    y = gap_draws(p, draws, generator)
    cross_entropy = -(q.log_prob_gap(y).mean(0) + (p.log_types.exp() * q.log_types).sum(-1))
    return Comparison(cross_entropy, overlap(p, q, y))


def overlap(p: MixtureLaw, q: MixtureLaw, y: Tensor) -> Tensor:
    """Unbiased estimate, per place, of the integral of min(p, q) over gap and type: the joint acceptance.

    y [N, ...]: N draws of the gap from p at each place [...]. The types are summed out, which leaves
    E_p[sum_k min(f_p(k), f_q(k) g_q(y) / g_p(y))]. Gradients flow to q.
    """
    # A ratio of e^30 is as good as any: beyond it exp would overflow and its gradient be NaN.
    ratio = (q.log_prob_gap(y) - p.log_prob_gap(y)).clamp(max=30.0).exp()
    covered = torch.minimum(p.log_types.exp(), q.log_types.exp() * ratio[..., None]).sum(-1)
    return covered.mean(0)


def gap_draws(p: MixtureLaw, draws: int, generator: torch.Generator) -> Tensor:
    """[N, ...] draws of y from p [...], stratified over the mixture's components to still the noise."""
    first = torch.rand(p.log_weights.shape[:-1], generator=generator, dtype=torch.float64)
    strata = torch.arange(draws, dtype=torch.float64).reshape(-1, *[1] * first.dim())
    u = ((strata + first) / draws).clamp(1e-12, 1 - 1e-12)
    within = torch.rand(u.shape, generator=generator, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
    every = MixtureLaw(*(t.expand(draws, *t.shape) for t in (p.log_weights, p.locs, p.log_scales, p.log_types)))
    return every.sample_gap(torch.stack([u, within], -1))
