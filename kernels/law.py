"""The law of the next event: gap and type, at many places at once.

A gap of `gap` seconds has the coordinate y = (log gap - log_mean) / log_std. Target and draft share the coordinate, so
the Jacobian cancels in every ratio of densities, and gaps from 1e-9 to 1e9 seconds keep their precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from stream_tpp.kernels import mixture
from stream_tpp.kernels.quantiles import quantiles


@dataclass(frozen=True)
class GapScale:
    """Coordinate of the gap. `floor` (seconds) is the gap given to events that share a time: ties have a law, not log 0."""

    log_mean: float
    log_std: float
    floor: float

    def to_y(self, gap: Tensor) -> Tensor:
        """Seconds to y, float64."""
        return (gap.to(torch.float64).clamp(min=self.floor).log() - self.log_mean) / self.log_std

    def to_gap(self, y: Tensor) -> Tensor:
        """y to seconds, float64."""
        return torch.exp(y.to(torch.float64) * self.log_std + self.log_mean)

    def elapsed_to_y(self, elapsed: Tensor) -> Tensor:
        """Quiet time so far to y; -inf (nothing known) where it is no longer than a tie."""
        return torch.where(elapsed > self.floor, self.to_y(elapsed), -torch.inf)


class Law(Protocol):
    """What sampling and verification ask of a law. Leading shape [...]; u are uniform numbers in (0, 1)."""

    @property
    def shape(self) -> torch.Size:
        """The leading shape."""

    def sample(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """u [..., 3] -> (y float64, k int64) [...]."""

    def log_prob(self, y: Tensor, k: Tensor) -> Tensor:
        """Log density of the event (y, k), [...]."""

    def sample_gap(self, u: Tensor) -> Tensor:
        """u [..., 2] -> y [...]."""

    def log_prob_gap(self, y: Tensor) -> Tensor:
        """Log density of y, [...]."""

    def types_given_gap(self, y: Tensor) -> Tensor:
        """Log probability of each type after a gap of y [...]: [..., K]."""

    def types(self) -> Tensor:
        """Log probability of each type, whatever the gap: [..., K]."""

    def sample_gap_given_type(self, k: Tensor, u: Tensor) -> Tensor:
        """k [...], u [..., 2] -> y [...]."""

    def log_prob_gap_given_type(self, y: Tensor, k: Tensor) -> Tensor:
        """Log density of y given the type, [...]."""

    def log_survival(self, y: Tensor) -> Tensor:
        """Log of the chance of a gap above y, [...]."""

    def quantile(self, levels: Tensor) -> Tensor:
        """y [B, Q] below which the next gap lies with probability levels [Q], for a law [B]."""

    def log_moment(self, a: float) -> Tensor:
        """Log of the mean of exp(a y), [...]; inf where that is infinite. The mean gap is that of a = log_std, rescaled."""

    def log_permitted(self, y: Tensor) -> Tensor:
        """Log probability, before `restrict`, of the permitted types given the gap, [...]; 0 when all are."""

    def given_elapsed(self, y_elapsed: Tensor) -> Self:
        """The law given that the gap is above y_elapsed ([...], -inf where nothing is known)."""

    def restrict(self, permitted: Tensor) -> Self:
        """The law with types outside `permitted` (bool [K]) suppressed and the others scaled up."""

    def reshape(self, *shape: int) -> Self:
        """Another leading shape of the same places."""

    def at(self, place: Tensor) -> Self:
        """One place per row: leading shape [R, n] and int64 [R] -> leading shape [R]."""

    def rows(self, index: Tensor) -> Self:
        """Some rows: index along the first dimension."""

    def first(self, n: int) -> Self:
        """The first n places of each row: leading shape [..., m] -> [..., n]."""

    def to(self, device: torch.device) -> Self:
        """The same on another device."""

    def expand_tries(self, n: int) -> Self:
        """Each place n times over, without a copy: leading shape [R] -> [R, n]."""


@dataclass(frozen=True)
class MixtureLaw:
    """Log-normal mixture for the gap, and a type law that does not depend on the gap (TPP-SD, section 4.1).

    float64: log_weights (normalised), locs, log_scales [..., M]; log_types (normalised) [..., K].
    y_elapsed [...]: the gap is known to be above it; log_tail [...] is the log chance of that.
    log_mass [...]: log probability of the permitted types before `restrict`.
    """

    log_weights: Tensor
    locs: Tensor
    log_scales: Tensor
    log_types: Tensor
    y_elapsed: Tensor | None = None
    log_tail: Tensor | None = None
    log_mass: Tensor | None = None

    @classmethod
    def from_logits(cls, weights: Tensor, locs: Tensor, log_scales: Tensor, types: Tensor) -> Self:
        """From a network's raw outputs of any float type, normalised in float64."""
        return cls(
            torch.log_softmax(weights.to(torch.float64), -1),
            locs.to(torch.float64),
            log_scales.to(torch.float64),
            torch.log_softmax(types.to(torch.float64), -1),
        )

    @property
    def shape(self) -> torch.Size:
        return self.log_weights.shape[:-1]

    @property
    def _mixture(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.log_weights, self.locs, self.log_scales

    def sample(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return self.sample_gap(u[..., :2]), mixture.categorical(u[..., 2], self.log_types)

    def log_prob(self, y: Tensor, k: Tensor) -> Tensor:
        return self.log_prob_gap(y) + self.log_types.gather(-1, k[..., None])[..., 0]

    def sample_gap(self, u: Tensor) -> Tensor:
        if self.y_elapsed is None:
            return mixture.sample(u, *self._mixture)
        return mixture.sample_above(self.y_elapsed, u, *self._mixture)

    def log_prob_gap(self, y: Tensor) -> Tensor:
        density = mixture.log_density(y, *self._mixture)
        if self.y_elapsed is None or self.log_tail is None:
            return density
        return torch.where(y >= self.y_elapsed, density - self.log_tail, -torch.inf)

    def types_given_gap(self, y: Tensor) -> Tensor:
        return self.log_types

    def types(self) -> Tensor:
        return self.log_types

    def sample_gap_given_type(self, k: Tensor, u: Tensor) -> Tensor:
        return self.sample_gap(u)

    def log_prob_gap_given_type(self, y: Tensor, k: Tensor) -> Tensor:
        return self.log_prob_gap(y)

    def log_survival(self, y: Tensor) -> Tensor:
        survival = mixture.log_survival(y, *self._mixture)
        if self.log_tail is None:
            return survival
        return (survival - self.log_tail).clamp(max=0.0)

    def quantile(self, levels: Tensor) -> Tensor:
        return quantiles(self, levels)

    def log_moment(self, a: float) -> Tensor:
        scales = torch.exp(self.log_scales)
        log_terms = self.log_weights + a * self.locs + 0.5 * (a * scales) ** 2
        if self.y_elapsed is None or self.log_tail is None:
            return torch.logsumexp(log_terms, -1)
        above = torch.special.log_ndtr((self.locs + a * scales**2 - self.y_elapsed[..., None]) / scales)
        return torch.logsumexp(log_terms + above, -1) - self.log_tail

    def log_permitted(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y) if self.log_mass is None else self.log_mass

    def given_elapsed(self, y_elapsed: Tensor) -> Self:
        return replace(self, y_elapsed=y_elapsed, log_tail=mixture.log_survival(y_elapsed, *self._mixture))

    def restrict(self, permitted: Tensor) -> Self:
        kept = self.log_types.masked_fill(~permitted, -torch.inf)
        mass = torch.logsumexp(kept, -1)
        return replace(self, log_types=kept - mass[..., None], log_mass=mass)

    def reshape(self, *shape: int) -> Self:
        return self._map(lambda t: t.reshape(*shape, t.shape[-1]), lambda t: t.reshape(shape))

    def at(self, place: Tensor) -> Self:
        row = torch.arange(len(place), device=place.device)
        return self._map(lambda t: t[row, place], lambda t: t[row, place])

    def rows(self, index: Tensor) -> Self:
        return self._map(lambda t: t[index], lambda t: t[index])

    def first(self, n: int) -> Self:
        return self._map(lambda t: t[..., :n, :], lambda t: t[..., :n])

    def to(self, device: torch.device) -> Self:
        return self._map(lambda t: t.to(device), lambda t: t.to(device))

    def expand_tries(self, n: int) -> Self:
        return self._map(
            lambda t: t[:, None].expand(len(t), n, t.shape[-1]),
            lambda t: t[:, None].expand(len(t), n),
        )

    def _map(self, wide: Callable[[Tensor], Tensor], flat: Callable[[Tensor], Tensor]) -> Self:
        """Apply `wide` to the tensors with a last dimension of their own, `flat` to those of the leading shape."""

        def optional(t: Tensor | None) -> Tensor | None:
            return None if t is None else flat(t)

        return replace(
            self,
            log_weights=wide(self.log_weights),
            locs=wide(self.locs),
            log_scales=wide(self.log_scales),
            log_types=wide(self.log_types),
            y_elapsed=optional(self.y_elapsed),
            log_tail=optional(self.log_tail),
            log_mass=optional(self.log_mass),
        )
