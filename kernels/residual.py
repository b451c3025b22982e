"""Draws from the residual (c p - q)+ / Z, where a draft's proposal was turned down, and the numbers they use.

Propose from p and keep with probability 1 - min(1, q / (c p)), until every row has kept one (Wang et al. 2024, arXiv
2411.11925). There is no cap on the tries: a cap would change the law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.law import Law
from stream_tpp.kernels.random import ACCEPT, BONUS, COINS, RESIDUAL, uniform

_FIRST_TRIES, _MOST_PROPOSALS = 4, 1 << 16


class SamplingError(StreamTppError):
    """The model gave a law that can't be sampled (NaN or infinite parameters)."""

    @classmethod
    def no_law(cls) -> SamplingError:
        return cls(
            "The model gave a law that can't be sampled (NaN or infinite): check its training with `stream-tpp doctor`, "
            "and the times of the history for values far outside what it was trained on."
        )


@dataclass(frozen=True)
class Draws:
    """The uniform numbers of one round: keys int64 [R] and the round's number."""

    keys: Tensor
    round: int

    def accept(self, n: int) -> Tensor:
        """Logs of the numbers for acceptance tests, [R, n]."""
        return torch.log(uniform(self.keys, self.round, ACCEPT, n))

    def bonus(self) -> Tensor:
        """Numbers for the event after the accepted ones, [R, 3]."""
        return uniform(self.keys, self.round, BONUS, 3)

    def residual(self, rows: Tensor, n: int, first: int, tries: int) -> Tensor:
        """n numbers for each of `tries` proposals after the first `first`, for some rows: [r, tries, n]."""
        numbers = uniform(self.keys[rows], self.round, RESIDUAL, n * tries, n * first)
        return numbers.reshape(len(rows), tries, n)

    def coins(self, rows: Tensor, places: Tensor, n: int, first: int, tries: int) -> Tensor:
        """n numbers for each of `tries` tosses after the first `first`, at one place of each of some rows: [r, tries, n]."""
        numbers = uniform(self.keys[rows], self.round, COINS, n * tries, (places << 40) + n * first)
        return numbers.reshape(len(rows), tries, n)


class Part(NamedTuple):
    """A part of the event that is drawn and judged by itself, the type k of the event being known where it matters."""

    numbers: int
    draw: Callable[[Law, Tensor, Tensor], tuple[Tensor, Tensor]]
    log_prob: Callable[[Law, Tensor, Tensor], Tensor]


EVENT = Part(3, lambda law, k, u: law.sample(u), lambda law, y, k: law.log_prob(y, k))
GAP = Part(2, lambda law, k, u: (law.sample_gap(u), k), lambda law, y, k: law.log_prob_gap(y))
GAP_GIVEN_TYPE = Part(
    2,
    lambda law, k, u: (law.sample_gap_given_type(k, u), k),
    lambda law, y, k: law.log_prob_gap_given_type(y, k),
)


def residual(part: Part, p: Law, q: Law, k: Tensor, log_c: Tensor, draws: Draws, rows: Tensor) -> tuple[Tensor, Tensor]:
    """One draw per row from (c p - q)+ / Z, for laws [r], known types k [r], log c [r]; `rows` [r] are their numbers in `draws`.

    Few rows left make more tries at once, so that an overlap near 1, where nearly all is turned down, ends soon as well.
    """
    y_kept, k_kept = torch.zeros_like(log_c), k.clone()
    left = torch.arange(len(rows), device=rows.device)
    first, tries = 0, _FIRST_TRIES
    while len(left):
        u = draws.residual(rows[left], part.numbers + 1, first, tries)
        p_left, q_left = p.rows(left).expand_tries(tries), q.rows(left).expand_tries(tries)
        y_new, k_new = part.draw(p_left, k[left, None].expand(-1, tries), u[..., :-1])
        log_ratio = log_of_ratio(part.log_prob(q_left, y_new, k_new), part.log_prob(p_left, y_new, k_new))
        kept = torch.log(u[..., -1]) > log_ratio - log_c[left, None]
        winner, done = kept.to(torch.int8).argmax(1, keepdim=True), kept.any(1)
        y_kept[left[done]] = y_new.gather(1, winner)[done, 0]
        k_kept[left[done]] = k_new.gather(1, winner)[done, 0]
        left, first = left[~done], first + tries
        tries = max(1, min(4 * tries, _MOST_PROPOSALS // max(1, len(left))))
    return y_kept, k_kept


def type_residual(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Log of (p - q)+ / Z over types, [..., K]; p where rounding leaves nothing of the difference."""
    excess = (log_p.exp() - log_q.exp()).clamp(min=0.0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, torch.log(excess / mass), log_p)


def log_of_ratio(log_q: Tensor, log_p: Tensor) -> Tensor:
    """log (q / p) at draws from p. Raises SamplingError where either is no density: a loop of tries would never end."""
    require_finite(torch.where(torch.isnan(log_q), log_q, log_p))
    return log_q - log_p


def require_finite(values: Tensor) -> None:
    """Raises SamplingError where a value, or the density of a draw, is NaN or infinite."""
    if not bool(torch.isfinite(values).all()):
        raise SamplingError.no_law()
