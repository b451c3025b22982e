"""Does a law integrate to 1: by quadrature of the density it claims, and of one made anew from its parameters.

The second owes nothing to the code that sampling and verification go through, and so can accuse it.
"""

from __future__ import annotations

import numpy as np
import torch

from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.bins import Bins
from stream_tpp.processes.sequence import Floats

_REACH, _POINTS = 9.0, 100
_LOG_LEAST, _LOG_MOST = -690.0, 690.0  # of a gap in seconds: beyond them float64 has no number for it
_GAUSS = 0.5 / np.sqrt(3.0)


def unnormalised(law: Law, scale: GapScale) -> Floats:
    """How far from 1 the law [n] integrates over types and over the gaps that float64 can hold, the worse way, [n].

    NaN where it is no law.
    """
    return np.array([_of_place(law.rows(torch.tensor([place])), scale) for place in range(law.shape[0])])


def _of_place(law: Law, scale: GapScale) -> float:
    if isinstance(law, BinnedLaw):
        anew, grid = float(law.log_tokens.exp().sum()), _bin_grid(law.bins)
        if np.isnan(anew):
            return anew
    else:
        assert isinstance(law, MixtureLaw)
        parameters = [t[0].cpu().numpy() for t in (law.log_weights, law.locs, law.log_scales, law.log_types)]
        if any(np.isnan(one).any() for one in parameters) or not np.isfinite(np.concatenate(parameters[1:3])).all():
            return float("nan")
        log_weights, locs, log_scales, log_types = parameters
        grid = (locs + np.exp(log_scales) * np.linspace(-_REACH, _REACH, _POINTS)[:, None]).ravel()
        nodes, steps = _nodes(grid, scale)
        z = (nodes[:, None] - locs) * np.exp(-log_scales)
        density = np.exp(log_weights - log_scales - 0.5 * z * z).sum(1) / np.sqrt(2 * np.pi)
        anew = float((density * steps).sum() * np.exp(log_types).sum())
    nodes, steps = _nodes(grid, scale)
    many, y = law.expand_tries(len(nodes)), torch.from_numpy(nodes)[None].to(law.types().device)
    claimed = torch.exp(many.log_prob_gap(y) + torch.logsumexp(many.types_given_gap(y), -1))[0].cpu().numpy()
    return max(abs(anew - 1.0), abs(float((claimed * steps).sum()) - 1.0), key=lambda off: np.inf if np.isnan(off) else off)


def _bin_grid(bins: Bins) -> Floats:
    """Wherever a density over bins jumps, and ever wider steps into its tails."""
    knots, edges = bins.knots.cpu().numpy(), bins.edges.cpu().numpy()
    outward = np.geomspace(1e-3, 1e3, 4 * _POINTS)
    return np.concatenate([knots[0] - outward, knots, edges, knots[-1] + outward])


def _nodes(grid: Floats, scale: GapScale) -> tuple[Floats, Floats]:
    """Gauss-Legendre of two nodes in every cell of a grid that is fine where the density is: nodes [2 C], weights [2 C]."""
    ends = (np.array([_LOG_LEAST, _LOG_MOST]) - scale.log_mean) / scale.log_std
    grid = np.unique(np.clip(grid, *ends))
    middle, width = (grid[1:] + grid[:-1]) / 2, np.diff(grid)
    return np.concatenate([middle - _GAUSS * width, middle + _GAUSS * width]), np.tile(width / 2, 2)
