"""The binned head: one joint token (time bin, type) for the next event, and the gap drawn inside its bin.

Target and draft share their bins, so the law inside a bin cancels in every ratio of densities, and an event is verified as
its token is. Types may depend on the gap, through its bin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from stream_tpp.kernels.mixture import categorical
from stream_tpp.kernels.quantiles import quantiles
from stream_tpp.model.bins import KNOTS, Bins


@dataclass(frozen=True)
class BinnedLaw:
    """A histogram over (bin, type), with the law of `bins` inside each bin. See `stream_tpp.kernels.law.Law`.

    float64, normalised: log_bins [..., N]; log_types [..., N, K], of a type given the bin. y_elapsed [...]: the gap is known
    to be above it, and log_bins are given that. log_mass [..., N]: log probability of the permitted types in each bin before
    `restrict`.
    """

    bins: Bins
    log_bins: Tensor
    log_types: Tensor
    y_elapsed: Tensor | None = None
    log_mass: Tensor | None = None

    @classmethod
    def from_logits(cls, tokens: Tensor, bins: Bins) -> Self:
        """From a network's raw outputs [..., N, K] of any float type, normalised in float64 over all N K tokens."""
        log_tokens = torch.log_softmax(tokens.to(torch.float64).flatten(-2), -1).reshape(tokens.shape)
        log_bins = torch.logsumexp(log_tokens, -1)
        return cls(bins, log_bins, log_tokens - log_bins[..., None])

    @property
    def shape(self) -> torch.Size:
        return self.log_bins.shape[:-1]

    @property
    def log_tokens(self) -> Tensor:
        """Log probability of each token (bin, type), [..., N, K]."""
        return self.log_bins[..., None] + self.log_types

    def sample(self, u: Tensor) -> tuple[Tensor, Tensor]:
        y = self.sample_gap(u)
        return y, categorical(u[..., 2], self.types_given_gap(y))

    def log_prob(self, y: Tensor, k: Tensor) -> Tensor:
        return self.log_prob_gap(y) + _at(self.types_given_gap(y), k)

    def sample_gap(self, u: Tensor) -> Tensor:
        return self._drawn(self.log_bins, u)

    def log_prob_gap(self, y: Tensor) -> Tensor:
        return self._log_density(self.log_bins, y)

    def types_given_gap(self, y: Tensor) -> Tensor:
        return _in_bin(self.log_types, self.bins.find(y))

    def types(self) -> Tensor:
        return torch.logsumexp(self.log_tokens, -2)

    def sample_gap_given_type(self, k: Tensor, u: Tensor) -> Tensor:
        return self._drawn(self._log_bins_given_type(k), u)

    def log_prob_gap_given_type(self, y: Tensor, k: Tensor) -> Tensor:
        return self._log_density(self._log_bins_given_type(k), y)

    def log_survival(self, y: Tensor) -> Tensor:
        return torch.logsumexp(self._log_bins_above(y), -1).clamp(max=0.0)

    def quantile(self, levels: Tensor) -> Tensor:
        return quantiles(self, levels)

    def log_moment(self, a: float) -> Tensor:
        terms = self.log_bins + self.bins.log_moment(a, self.y_elapsed)
        return torch.logsumexp(torch.where(self.log_bins == -torch.inf, -torch.inf, terms), -1)

    def log_permitted(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y) if self.log_mass is None else _at(self.log_mass, self.bins.find(y))

    def given_elapsed(self, y_elapsed: Tensor) -> Self:
        return replace(self, y_elapsed=y_elapsed, log_bins=torch.log_softmax(self._log_bins_above(y_elapsed), -1))

    def restrict(self, permitted: Tensor) -> Self:
        kept = self.log_types.masked_fill(~permitted, -torch.inf)
        mass = torch.logsumexp(kept, -1)
        return replace(self, log_types=kept - mass[..., None], log_mass=mass)

    def reshape(self, *shape: int) -> Self:
        return self._map(lambda t, own: t.reshape(*shape, *t.shape[t.dim() - own :]))

    def at(self, place: Tensor) -> Self:
        row = torch.arange(len(place), device=place.device)
        return self._map(lambda t, own: t[row, place])

    def rows(self, index: Tensor) -> Self:
        return self._map(lambda t, own: t[index])

    def first(self, n: int) -> Self:
        return self._map(lambda t, own: t.narrow(t.dim() - own - 1, 0, n))

    def to(self, device: torch.device) -> Self:
        return replace(self._map(lambda t, own: t.to(device)), bins=self.bins.to(device))

    def expand_tries(self, n: int) -> Self:
        return self._map(lambda t, own: t[:, None].expand(len(t), n, *t.shape[1:]))

    def _map(self, change: Callable[[Tensor, int], Tensor]) -> Self:
        """Change every tensor; the number is how many of its last dimensions are its own, not the leading shape's."""
        return replace(
            self,
            log_bins=change(self.log_bins, 1),
            log_types=change(self.log_types, 2),
            y_elapsed=None if self.y_elapsed is None else change(self.y_elapsed, 0),
            log_mass=None if self.log_mass is None else change(self.log_mass, 1),
        )

    def _drawn(self, log_bins: Tensor, u: Tensor) -> Tensor:
        """Where the law is none (NaN), so is the gap."""
        j = categorical(u[..., 0], log_bins)
        return self.bins.draw(j, u[..., 1], self.y_elapsed) + 0.0 * _at(log_bins, j)

    def _log_density(self, log_bins: Tensor, y: Tensor) -> Tensor:
        j = self.bins.find(y)
        density = _at(log_bins, j) + self.bins.log_density(y, j) - self._log_elapsed(j)
        return density if self.y_elapsed is None else torch.where(y >= self.y_elapsed, density, -torch.inf)

    def _log_bins_given_type(self, k: Tensor) -> Tensor:
        index = k[..., None, None].expand(*self.log_bins.shape, 1)
        return torch.log_softmax(self.log_bins + self.log_types.gather(-1, index)[..., 0], -1)

    def _log_bins_above(self, y: Tensor) -> Tensor:
        """Log of what each bin holds above y, [..., N]."""
        j = self.bins.find(y)
        index = torch.arange(len(self.bins), device=y.device)
        share = (self.bins.log_above(y, j) - self._log_elapsed(j)).clamp(max=0.0)
        own = torch.where(index == j[..., None], share[..., None], 0.0)
        return torch.where(index >= j[..., None], self.log_bins + own, -torch.inf)

    def _log_elapsed(self, j: Tensor) -> Tensor | float:
        """Log share of bin j that the elapsed time has left: 0 but for the bin that it ended in."""
        if self.y_elapsed is None:
            return 0.0
        ended = self.bins.find(self.y_elapsed)
        return torch.where(j == ended, self.bins.log_above(self.y_elapsed, ended), 0.0)


class TimeBins(nn.Module):
    """Bins as part of a network's state: `cut` sets them, a checkpoint keeps them."""

    knots: Tensor
    edges: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.register_buffer("knots", torch.empty(KNOTS, dtype=torch.float64))
        self.register_buffer("edges", torch.empty(bins - 1, dtype=torch.float64))
        self.cut(Bins.of_normal(bins))

    def cut(self, bins: Bins) -> None:
        """Set the bins, as many as there are. Target and draft must be given the same."""
        assert bins.edges.shape == self.edges.shape
        self.knots.copy_(bins.knots)
        self.edges.copy_(bins.edges)
        self.bins = Bins(self.knots, self.edges)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.bins = Bins(self.knots, self.edges)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        knots, edges = self.knots, self.edges
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # To another device, but never to another float type: bins would collapse.
        self.knots, self.edges = knots.to(self.knots.device), edges.to(self.edges.device)
        self.bins = Bins(self.knots, self.edges)
        return self


class BinnedHead(TimeBins):
    """Hidden state -> logits of N K joint tokens."""

    def __init__(self, width: int, bins: int, types: int) -> None:
        super().__init__(bins)
        self.sizes = (bins, types)
        self.tokens = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, bins * types))

    def forward(self, hidden: Tensor) -> Tensor:
        """Raw outputs [..., N K] of hidden states [..., D]."""
        raw: Tensor = self.tokens(hidden)
        return raw

    def law(self, raw: Tensor) -> BinnedLaw:
        """The law [...] that raw outputs [..., N K] stand for."""
        return BinnedLaw.from_logits(raw.reshape(*raw.shape[:-1], *self.sizes), self.bins)


def _at(log_probabilities: Tensor, index: Tensor) -> Tensor:
    return log_probabilities.gather(-1, index[..., None])[..., 0]


def _in_bin(log_types: Tensor, j: Tensor) -> Tensor:
    """[..., N, K] in bins [...]: [..., K]."""
    index = j[..., None, None].expand(*j.shape, 1, log_types.shape[-1])
    return log_types.gather(-2, index)[..., 0, :]
