"""Does a law integrate to 1: by quadrature of the density it claims, and of one made anew from its parameters.

The second owes nothing to the code that sampling and verification go through, and so can accuse it.
"""

from __future__ import annotations

import numpy as np
import torch

from stream_tpp.model.law import GapScale, MixtureLaw
from stream_tpp.processes.sequence import Floats

_REACH, _POINTS = 9.0, 100
_LOG_LEAST, _LOG_MOST = -690.0, 690.0  # of a gap in seconds: beyond them float64 has no number for it
_GAUSS = 0.5 / np.sqrt(3.0)


def unnormalised(law: MixtureLaw, scale: GapScale) -> Floats:
    """How far from 1 the law [n] integrates over types and over the gaps that float64 can hold, the worse way, [n].

    NaN where it is no law.
    """
    return np.array([_of_place(law.rows(torch.tensor([place])), scale) for place in range(law.shape[0])])


def _of_place(law: MixtureLaw, scale: GapScale) -> float:
    parameters = [t[0].cpu().numpy() for t in (law.log_weights, law.locs, law.log_scales, law.log_types)]
    if any(np.isnan(one).any() for one in parameters) or not np.isfinite(np.concatenate(parameters[1:3])).all():
        return float("nan")
    log_weights, locs, log_scales, log_types = parameters
    nodes, steps = _nodes(locs, log_scales, scale)
    z = (nodes[:, None] - locs) * np.exp(-log_scales)
    density = np.exp(log_weights - log_scales - 0.5 * z * z).sum(1) / np.sqrt(2 * np.pi)
    anew = float((density * steps).sum() * np.exp(log_types).sum())
    many, y = law.expand_tries(len(nodes)), torch.from_numpy(nodes)[None].to(law.locs.device)
    claimed = torch.exp(many.log_prob_gap(y) + torch.logsumexp(many.types_given_gap(y), -1))[0].cpu().numpy()
    return max(abs(anew - 1.0), abs(float((claimed * steps).sum()) - 1.0), key=lambda off: np.inf if np.isnan(off) else off)


def _nodes(locs: Floats, log_scales: Floats, scale: GapScale) -> tuple[Floats, Floats]:
    """Gauss-Legendre of two nodes in every cell of a grid that is fine where any component is: nodes [2 C], weights [2 C]."""
    grid = (locs + np.exp(log_scales) * np.linspace(-_REACH, _REACH, _POINTS)[:, None]).ravel()
    ends = (np.array([_LOG_LEAST, _LOG_MOST]) - scale.log_mean) / scale.log_std
    grid = np.unique(np.clip(grid, *ends))
    middle, width = (grid[1:] + grid[:-1]) / 2, np.diff(grid)
    return np.concatenate([middle - _GAUSS * width, middle + _GAUSS * width]), np.tile(width / 2, 2)
