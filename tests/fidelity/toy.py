"""Targets and drafts whose law is written down, behind the protocols of the sampler.

The law of the next event remembers the newest gap and type, the type before and a fading average of all gaps, so that a
sampler that loses, repeats, reorders or leaks an event draws from another law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout

SCALE = GapScale(log_mean=0.5, log_std=1.5, floor=1e-9)
"""Gaps of one and a half seconds, give or take a factor of 4.5."""


class Parts(NamedTuple):
    """A mixture in y whose components have type laws of their own: logs of weights [..., M] and of types [..., M, K]."""

    log_weights: Tensor
    locs: Tensor
    scales: Tensor
    log_types: Tensor

    def survival(self, y: Tensor) -> Tensor:
        """Chance of a gap above y [...]; y may be -inf."""
        tails: Tensor = torch.special.ndtr((self.locs - y[..., None]) / self.scales)
        return (self.log_weights.exp() * tails).sum(-1)

    def types_given_gap(self, y: Tensor) -> Tensor:
        """Probability of each type after a gap of y [...]: [..., K]."""
        z = (y[..., None] - self.locs) / self.scales
        posterior = torch.softmax(self.log_weights - 0.5 * z * z - self.scales.log(), -1)
        return (posterior[..., None] * self.log_types.exp()).sum(-2)


@dataclass(frozen=True)
class Toy:
    """How the next event's law follows from the past.

    weights, locs [K + 1, M] by the newest type (K: BOS); scales [M]; pull: how far the newest gap, and the fading average,
    move all locs; types [K + 1, M, K] logits by newest type and component, types_before [K + 1, K] by the type before it.
    """

    weights: Tensor
    locs: Tensor
    scales: Tensor
    pull: tuple[float, float]
    types: Tensor
    types_before: Tensor
    coupled: bool

    @classmethod
    def random(cls, seed: int, types: int = 3, components: int = 3, *, coupled: bool = False) -> Self:
        """With `coupled` a type also depends on its gap, else only on the past (as the mixture head has it)."""
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        by_component = normal(types + 1, components, types) * 1.2
        if not coupled:
            by_component = by_component[:, :1].expand(-1, components, -1)
        return cls(
            weights=normal(types + 1, components),
            locs=normal(types + 1, components) * 0.6 - 0.3,
            scales=0.3 + 0.5 * torch.rand(components, generator=random, dtype=torch.float64),
            pull=(0.8, 0.8),
            types=by_component,
            types_before=normal(types + 1, types) * 0.8,
            coupled=coupled,
        )

    @property
    def num_types(self) -> int:
        return self.types.shape[-1]

    def disturbed(self, distance: float, seed: int) -> Toy:
        """A draft of this target: distance 0 is the target itself, 0.1 nearly so, 4 another law altogether.

        How near it is depends on the newest type, so the rows of a batch accept different numbers of events.
        """
        other = Toy.random(seed, self.num_types, self.locs.shape[-1], coupled=self.coupled)
        return replace(
            self,
            weights=self.weights + distance * other.weights,
            locs=self.locs + distance * (other.locs + 0.3),
            scales=self.scales * torch.exp(0.2 * math.tanh(distance) * other.weights[0]),
            types=self.types + distance * other.types,
        )

    def start(self, *shape: int) -> Tensor:
        """State [..., 4] before anything happened: newest y, fading average of tanh y, newest type, the type before."""
        kind = float(self.num_types)
        return torch.tensor([0.0, 0.0, kind, kind], dtype=torch.float64).expand(*shape, 4)

    def step(self, state: Tensor, y: Tensor, types: Tensor) -> Tensor:
        """State after an event (y, type) [...]."""
        average = 0.7 * state[..., 1] + 0.3 * torch.tanh(y)
        return torch.stack([y, average, types.to(torch.float64), state[..., 2]], -1)

    def after(self, state: Tensor, block: Block) -> Tensor:
        """States [..., n + 1, 4] before the block's events [..., n] and after each of them."""
        states = [state]
        for place in range(block.y.shape[-1]):
            states.append(self.step(states[-1], block.y[..., place], block.types[..., place]))
        return torch.stack(states, -2)

    def parts(self, state: Tensor) -> Parts:
        """The next event's law after `state`, [...]."""
        newest, before = state[..., 2].long(), state[..., 3].long()
        locs = self.locs[newest] + (self.pull[0] * torch.tanh(state[..., 0]) + self.pull[1] * state[..., 1])[..., None]
        logits = self.types[newest] + self.types_before[before][..., None, :]
        return Parts(
            torch.log_softmax(self.weights[newest], -1),
            locs,
            self.scales.expand_as(locs),
            torch.log_softmax(logits, -1),
        )

    def law(self, state: Tensor) -> Law:
        """The same for the sampler: the engine's own MixtureLaw, or a CoupledLaw."""
        parts = self.parts(state)
        if self.coupled:
            return CoupledLaw(parts)
        return MixtureLaw(parts.log_weights, parts.locs, parts.scales.log(), parts.log_types[..., 0, :])

    def at_history(self, histories: Histories) -> Tensor:
        """States [B, S + 1, 4] along packed histories."""
        return self.after(self.start(len(histories.lengths)), histories.block)


class ToyCache:
    """The state [B, P, 4] of each row, and the states along the last block."""

    def __init__(self, state: Tensor) -> None:
        self.state = state
        self.along = state[..., None, :]

    def keep(self, added: Tensor) -> None:
        self.state = at_place(self.along, added)

    def choose(self, paths: Tensor) -> None:
        self.state = at_paths(self.state, paths)


@dataclass(frozen=True)
class ToyTarget:
    toy: Toy

    def prefill(self, histories: Histories, paths: int) -> tuple[ToyCache, Tensor]:
        states = self.toy.at_history(histories)
        before_last = states[torch.arange(len(states)), histories.lengths - 1]
        state = before_last[:, None].expand(-1, paths, -1)
        return ToyCache(state), state

    def extend(self, cache: ToyCache, block: Block) -> tuple[Law, Tensor]:
        cache.along = self.toy.after(cache.state, block)
        return self.toy.law(cache.along[..., 1:, :]), cache.along[..., 1:, :]


@dataclass(frozen=True)
class ToyDraft:
    """Keeps the state before the pending event by itself; the target's hidden states don't matter to it."""

    toy: Toy

    def begin(self, histories: Histories, hidden: Tensor) -> Tensor:
        before_last = self.toy.at_history(histories)[torch.arange(len(histories.lengths)), histories.lengths - 1]
        return before_last[:, None].expand(hidden.shape[0], hidden.shape[1], -1)

    def rollout(
        self, state: Tensor, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        event = pending.map(lambda t: t[..., 0])
        states, events = [self.toy.step(state, event.y, event.types)], []
        for place in range(u.shape[2]):
            law = given(self.toy.law(states[-1]), y_elapsed if place == 0 else None, permitted)
            y, types = law.sample(u[:, :, place])
            event = Block(y, types, event.times + scale.to_gap(y), event.origin)
            events.append(event)
            states.append(self.toy.step(states[-1], y, types))
        along = torch.stack(states, 2)
        block = Block(*(torch.stack([getattr(e, name) for e in events], -1) for name in ("y", "types", "times", "origin")))
        if y_elapsed is not None:
            y_elapsed = torch.nn.functional.pad(y_elapsed[..., None], (0, u.shape[2] - 1), value=-torch.inf)
        return Rollout(block, given(self.toy.law(along[:, :, :-1]), y_elapsed, permitted), along)

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Tensor:
        return at_place(rollout.state, accepted)

    def choose(self, state: Tensor, paths: Tensor) -> Tensor:
        return at_paths(state, paths)


def given(law: Law, y_elapsed: Tensor | None, permitted: Tensor | None) -> Law:
    if y_elapsed is not None:
        law = law.given_elapsed(y_elapsed)
    return law if permitted is None else law.restrict(permitted)


def at_place(states: Tensor, place: Tensor) -> Tensor:
    """states [B, P, n, D], place [B, P] -> [B, P, D]."""
    index = place[..., None, None].expand(*place.shape, 1, states.shape[-1])
    return states.gather(2, index)[:, :, 0]


def at_paths(state: Tensor, paths: Tensor) -> Tensor:
    """state [B, P, D], paths [B, P'] -> [B, P', D]."""
    return state.gather(1, paths[..., None].expand(-1, -1, state.shape[-1]))


@dataclass(frozen=True)
class CoupledLaw:
    """A law in which the type depends on the gap, so that the order of verification matters. `low` [...]: the gap is above it."""

    parts: Parts
    low: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.parts.locs.shape[:-1]

    def sample(self, u: Tensor) -> tuple[Tensor, Tensor]:
        y = self.sample_gap(u[..., :2])
        return y, self._inverse(self.types_given_gap(y), u[..., 2])

    def log_prob(self, y: Tensor, k: Tensor) -> Tensor:
        return self.log_prob_gap(y) + self.types_given_gap(y).gather(-1, k[..., None])[..., 0]

    def sample_gap(self, u: Tensor) -> Tensor:
        return self._draw(self._tail_weights(), u)

    def log_prob_gap(self, y: Tensor) -> Tensor:
        return self._log_density(self._tail_weights(), y)

    def types_given_gap(self, y: Tensor) -> Tensor:
        return self.parts.types_given_gap(y).log()

    def types(self) -> Tensor:
        return torch.logsumexp(self._tail_weights()[..., None] + self.parts.log_types, -2)

    def sample_gap_given_type(self, k: Tensor, u: Tensor) -> Tensor:
        return self._draw(self._weights_given(k), u)

    def log_prob_gap_given_type(self, y: Tensor, k: Tensor) -> Tensor:
        return self._log_density(self._weights_given(k), y)

    def log_survival(self, y: Tensor) -> Tensor:
        below = self.parts.survival(y).log()
        return below if self.low is None else (below - self.parts.survival(self.low).log()).clamp(max=0.0)

    def to(self, device: torch.device) -> CoupledLaw:
        return self._map(lambda t, own: t.to(device))

    def log_permitted(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y)

    def given_elapsed(self, y_elapsed: Tensor) -> Self:
        return replace(self, low=y_elapsed)

    def restrict(self, permitted: Tensor) -> Self:
        raise NotImplementedError("the coupled toy law is never restricted")

    def reshape(self, *shape: int) -> Self:
        return self._map(lambda t, own: t.reshape(*shape, *t.shape[t.dim() - own :]))

    def at(self, place: Tensor) -> Self:
        return self._map(lambda t, own: t[torch.arange(len(place)), place])

    def rows(self, index: Tensor) -> Self:
        return self._map(lambda t, own: t[index])

    def first(self, n: int) -> Self:
        return self._map(lambda t, own: t.narrow(t.dim() - own - 1, 0, n))

    def expand_tries(self, n: int) -> Self:
        return self._map(lambda t, own: t[:, None].expand(len(t), n, *t.shape[1:]))

    def _map(self, change: Callable[[Tensor, int], Tensor]) -> Self:
        """Change every tensor; the number is how many of its last dimensions are not leading shape."""
        parts = Parts(*(change(t, own) for t, own in zip(self.parts, (1, 1, 1, 2), strict=True)))
        return replace(self, parts=parts, low=None if self.low is None else change(self.low, 0))

    def _log_tails(self) -> Tensor:
        """Log chance that each component is above `low`, [..., M]."""
        if self.low is None:
            return torch.zeros_like(self.parts.locs)
        tails: Tensor = torch.special.log_ndtr((self.parts.locs - self.low[..., None]) / self.parts.scales)
        return tails

    def _tail_weights(self) -> Tensor:
        return torch.log_softmax(self.parts.log_weights + self._log_tails(), -1)

    def _weights_given(self, k: Tensor) -> Tensor:
        index = k[..., None, None].expand(*self.parts.locs.shape, 1)
        return torch.log_softmax(self._tail_weights() + self.parts.log_types.gather(-1, index)[..., 0], -1)

    def _draw(self, log_weights: Tensor, u: Tensor) -> Tensor:
        component = self._inverse(log_weights, u[..., 0])[..., None]
        tail = self._log_tails().gather(-1, component)[..., 0].exp()
        z = -torch.special.ndtri(tail * u[..., 1])
        y = self.parts.locs.gather(-1, component)[..., 0] + z * self.parts.scales.gather(-1, component)[..., 0]
        return y if self.low is None else torch.maximum(y, self.low)

    def _log_density(self, log_weights: Tensor, y: Tensor) -> Tensor:
        z = (y[..., None] - self.parts.locs) / self.parts.scales
        normal = -0.5 * z * z - self.parts.scales.log() - 0.5 * math.log(2 * math.pi)
        density = torch.logsumexp(log_weights - self._log_tails() + normal, -1)
        return density if self.low is None else torch.where(y >= self.low, density, -torch.inf)

    @staticmethod
    def _inverse(log_probabilities: Tensor, u: Tensor) -> Tensor:
        cumulative = log_probabilities.exp().cumsum(-1)
        return (cumulative[..., :-1] <= (u * cumulative[..., -1])[..., None]).sum(-1)
