"""Time cut into bins, and the law of a gap inside its bin.

All is in y, the standardised log gap. The law inside is that of the data: a base law F, piecewise linear through
quantiles of the gaps seen in training, with exponential tails in y (power laws in the gap) beyond the last of them. A gap
in bin j has the density f(y) / (F(top) - F(bottom)); the first and the last bin take the tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.model.config import Spacing

KNOTS = 1024
_SPREAD = 1e-5  # least distance of two knots, so that values seen again and again share a narrow cell, not a point
_LEAST_TAIL = 0.05
_LEAST_MASS = 1e-300


@dataclass(frozen=True)
class Bins:
    """knots float64 [Q], increasing: where F is (i + 1/2) / Q. edges float64 [N - 1], increasing, inside the knots.

    Bin j holds edges[j - 1] <= y < edges[j].
    """

    knots: Tensor
    edges: Tensor

    @classmethod
    def fit(cls, y: Tensor, bins: int, spacing: Spacing = "quantile") -> Self:
        """At most `bins` bins for gaps such as y (any shape), of equal mass ("quantile") or equal width.

        A value that is seen again and again (ties, whole seconds) has a bin of its own where it fills more than one by
        mass; so there can be fewer bins. Raises StreamTppError where y is empty or not finite.
        """
        values = y.detach().to("cpu", torch.float64).numpy().ravel()
        if not len(values) or not np.isfinite(values).all():
            raise StreamTppError("Time bins need at least one gap, all of them finite: check the times of the training data.")
        knots = _apart(np.quantile(values, (np.arange(KNOTS) + 0.5) / KNOTS))
        edges = _edges_by_mass(knots, bins) if spacing == "quantile" else np.linspace(knots[0], knots[-1], bins + 1)[1:-1]
        return cls(torch.from_numpy(knots), torch.from_numpy(edges))

    @classmethod
    def of_normal(cls, bins: int) -> Self:
        """Bins of equal mass where nothing was seen yet: y is standardised, so roughly normal."""
        knots = torch.special.ndtri((torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS)
        return cls(knots, torch.special.ndtri(torch.arange(1, bins, dtype=torch.float64) / bins))

    def __len__(self) -> int:
        return len(self.edges) + 1

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return self if self.knots.device == device else type(self)(self.knots.to(device), self.edges.to(device))

    def find(self, y: Tensor) -> Tensor:
        """The bin of y, int64 [...]."""
        return torch.bucketize(y.contiguous(), self.edges, right=True)

    def log_density(self, y: Tensor, j: Tensor) -> Tensor:
        """Log density of y within its bin j, [...]."""
        cell = self._cell(y)
        inside = 0.0 * y - torch.log(len(self.knots) * (self.knots[cell + 1] - self.knots[cell]))  # NaN stays NaN
        below = self._log_end - math.log(self._low_scale) + (y - self.knots[0]) / self._low_scale
        above = self._log_end - math.log(self._high_scale) - (y - self.knots[-1]) / self._high_scale
        base = torch.where(y < self.knots[0], below, torch.where(y > self.knots[-1], above, inside))
        return base - self.log_mass[j]

    def log_above(self, y: Tensor, j: Tensor) -> Tensor:
        """Log share of bin j, the bin of y, that is above y, [...]; y may be -inf. Never quite nothing."""
        within = torch.log((self._cdf_at_ends[j + 1] - self._cdf(y)).clamp(min=_LEAST_MASS))
        left = torch.where(j == len(self) - 1, self._log_survival(y), within)
        return (left - self.log_mass[j]).clamp(max=0.0)

    def draw(self, j: Tensor, u: Tensor, y_low: Tensor | None = None) -> Tensor:
        """A gap in bin j from a uniform number u, [...]; above y_low in the bin that y_low is in."""
        bottom = self._bottoms[j] if y_low is None else torch.maximum(self._bottoms[j], y_low)
        low = self._cdf(bottom)
        cdf = low + (1 - u) * (self._cdf_at_ends[j + 1] - low)
        # In the last bin from the top, where the distribution function has no digits left.
        log_survival = torch.where(j == len(self) - 1, self._log_survival(bottom) + torch.log(u), torch.log1p(-cdf))
        return torch.minimum(torch.maximum(self._quantile(cdf, log_survival), bottom), self._tops[j])

    def log_moment(self, a: float, y_low: Tensor | None = None) -> Tensor:
        """Log of the mean of exp(a y) in each bin, a > 0, [N]; where y_low [...] is given, of what is above it in its own bin,
        [..., N]. inf in the last bin where the tail is too heavy, a times its scale 1 or more.
        """
        index = torch.arange(len(self), device=self.edges.device)
        whole = self._log_moment_above(a, self._bottoms, index)
        if y_low is None:
            return whole
        j = self.find(y_low)
        return torch.where(index == j[..., None], self._log_moment_above(a, y_low, j)[..., None], whole)

    @cached_property
    def log_mass(self) -> Tensor:
        """Log of the base law's mass in each bin, [N]."""
        inner = torch.log(self._cdf_at_ends.diff()[:-1])
        return torch.cat([inner, self._log_survival(self._bottoms[-1:])])

    @cached_property
    def _bottoms(self) -> Tensor:
        return torch.cat([self.edges.new_tensor([-torch.inf]), self.edges])

    @cached_property
    def _tops(self) -> Tensor:
        """The largest number in each bin."""
        below = torch.nextafter(self.edges, torch.full_like(self.edges, -torch.inf))
        return torch.cat([below, self.edges.new_tensor([torch.inf])])

    @cached_property
    def _cdf_at_ends(self) -> Tensor:
        """F at the bottom of each bin and at the top of the last, [N + 1]."""
        ends = self.edges.new_tensor([0.0, 1.0])
        return torch.cat([ends[:1], self._cdf(self.edges), ends[1:]])

    @cached_property
    def _low_scale(self) -> float:
        """Of the lower tail: as from the quantile 0.1 to the first knot."""
        return self._tail_scale(float(self.knots[len(self.knots) // 10] - self.knots[0]))

    @cached_property
    def _high_scale(self) -> float:
        return self._tail_scale(float(self.knots[-1] - self.knots[-1 - len(self.knots) // 10]))

    def _tail_scale(self, reach: float) -> float:
        return max(reach / math.log(2 * (len(self.knots) // 10) + 1), _LEAST_TAIL)

    @property
    def _log_end(self) -> float:
        """Log mass of each tail."""
        return math.log(0.5 / len(self.knots))

    def _cell(self, y: Tensor) -> Tensor:
        """The knot before y, the first or the last but one where y is outside."""
        return (torch.searchsorted(self.knots, y.contiguous(), right=True) - 1).clamp(0, len(self.knots) - 2)

    def _cdf(self, y: Tensor) -> Tensor:
        cell, knots = self._cell(y), self.knots
        inside = (cell + 0.5 + (y - knots[cell]) / (knots[cell + 1] - knots[cell])) / len(knots)
        tail = torch.exp(self._log_end + ((y - knots[0]) / self._low_scale).clamp(max=0.0))
        return torch.where(y < knots[0], tail, torch.where(y > knots[-1], -torch.expm1(self._log_high_tail(y)), inside))

    def _log_survival(self, y: Tensor) -> Tensor:
        return torch.where(y > self.knots[-1], self._log_high_tail(y), torch.log1p(-self._cdf(y)))

    def _log_high_tail(self, y: Tensor) -> Tensor:
        return self._log_end - ((y - self.knots[-1]) / self._high_scale).clamp(min=0.0)

    def _log_moment_above(self, a: float, y: Tensor, j: Tensor) -> Tensor:
        """Log of the mean of exp(a y) above y [...] in its bin j. In the upper tail, which has no memory, it is closed."""
        thinned = 1 - a * self._high_scale
        log_tail = a * y.clamp(min=float(self.knots[-1])) - math.log(thinned) if thinned > 0 else torch.full_like(y, torch.inf)
        inside = self._moment_below(a, torch.minimum(self._tops[j], self.knots[-1])) - self._moment_below(a, y)
        beyond = torch.where(j == len(self) - 1, torch.exp(self._log_end + log_tail), 0.0)
        mean = torch.log(inside + beyond) - self.log_mass[j] - self.log_above(y, j)
        return torch.where(y >= self.knots[-1], log_tail, mean)

    def _moment_below(self, a: float, y: Tensor) -> Tensor:
        """Integral of exp(a y) under the base law up to y, at most the last knot."""
        knots, cells = self.knots, self.knots.diff()
        low = torch.exp(self._log_end + a * knots[0]) / (1 + a * self._low_scale)
        parts = torch.exp(a * knots[:-1]) * torch.expm1(a * cells) / (a * len(knots) * cells)
        to_knot = torch.cat([low[None], low + parts.cumsum(0)])
        cell, y = self._cell(y), y.clamp(max=float(knots[-1]))
        along = torch.expm1(a * (y - knots[cell])) / (a * len(knots) * cells[cell])
        tail = low * torch.exp((a + 1 / self._low_scale) * (y - knots[0]).clamp(max=0.0))
        return torch.where(y < knots[0], tail, to_knot[cell] + torch.exp(a * knots[cell]) * along)

    def _quantile(self, cdf: Tensor, log_survival: Tensor) -> Tensor:
        """The y of a probability that is given from below and, as a log, from above."""
        last = len(self.knots) - 1
        position = cdf * len(self.knots) - 0.5
        cell = position.clamp(0, last - 1).long()
        inside = self.knots[cell] + (position - cell) * (self.knots[cell + 1] - self.knots[cell])
        below = self.knots[0] + self._low_scale * (torch.log(cdf) - self._log_end)
        above = self.knots[-1] - self._high_scale * (log_survival - self._log_end)
        return torch.where(position < 0, below, torch.where(log_survival < self._log_end, above, inside))


def _apart(quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles moved, as little as can be and to both sides alike, until each is _SPREAD above the one before."""
    steps = _SPREAD * np.arange(len(quantiles))
    upward = np.maximum.accumulate(quantiles - steps)
    downward = np.minimum.accumulate((quantiles - steps)[::-1])[::-1]
    apart: NDArray[np.float64] = (upward + downward) / 2 + steps
    return apart


def _edges_by_mass(knots: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Every (Q / bins)-th knot; one in the midst of a value that was seen again and again moves to the nearer end of it."""
    tied = np.diff(knots) < 1.5 * _SPREAD
    free = np.flatnonzero(~np.concatenate([[False], tied[:-1] & tied[1:], [False]]))
    wanted = np.arange(1, bins) * len(knots) // bins
    nearest = free[np.abs(free[:, None] - wanted).argmin(0)]
    chosen = np.unique(nearest)
    edges: NDArray[np.float64] = knots[chosen[(chosen > 0) & (chosen < len(knots) - 1)]]
    return edges
