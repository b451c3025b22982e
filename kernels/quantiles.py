"""Quantiles of the next gap, of any law, by search: what `Law.quantile` must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from stream_tpp.kernels.law import Law

_DOUBLINGS, _CUTS, _PARTS = 64, 11, 16


def quantiles(law: Law, levels: Tensor) -> Tensor:
    """y [B, Q] below which the next gap lies with probability levels [Q], for a law [B].

    An interval that holds it is cut in _PARTS, all of them looked at in one call: what a call costs is not its arithmetic.
    """
    quantiles, inner = len(levels), torch.arange(1, _PARTS, dtype=torch.float64)
    ends, cuts = law.expand_tries(quantiles), law.expand_tries(quantiles * len(inner))

    def below(places: Law, y: Tensor, levels: Tensor) -> Tensor:
        """Whether the quantile is above y."""
        return torch.exp(places.log_survival(y)) > 1 - levels

    low = torch.full((*law.shape, quantiles), -1.0, dtype=torch.float64)
    high = -low
    for _ in range(_DOUBLINGS):  # a long silence after regular gaps is far out in y
        too_high, too_low = ~below(ends, low, levels), below(ends, high, levels)
        if not bool((too_high | too_low).any()):
            break
        low, high = torch.where(too_high, 2 * low, low), torch.where(too_low, 2 * high, high)
    of_cut = levels.repeat_interleave(len(inner))
    for _ in range(_CUTS):
        part = (high - low)[..., None] / _PARTS
        y = low[..., None] + part * inner
        passed = below(cuts, y.flatten(-2), of_cut).reshape(y.shape).sum(-1, keepdim=True)
        low, high = (low[..., None] + part * passed)[..., 0], (low[..., None] + part * (passed + 1))[..., 0]
    return high
