"""Verification: which drafted events stand, and the event that follows them. Every mode gives exactly the target's law.

Shapes: R rows, n places. p is the target's law at n + 1 places (after the pending event and after each drafted one), q
the draft's law at the n places that the drafted events (y, k) [R, n] came from. `limits` int64 [R] <= n: how many drafted
events of a row may stand. The result is how many do, and the next event: a bonus from p when all stood, else a draw
from the residual at the first rejection.

Sources: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1 and theorem A.1; for densities Wang et al. 2024
(arXiv 2411.11925); for event times TPP-SD (arXiv 2507.09252), algorithm 1, whose literal reading is biased: the residual
must belong to what was rejected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.random import uniform
from stream_tpp.model.law import Law

_ACCEPT, _PROPOSE, _BONUS = 1, 2, 3
_TRIES = (4, 1 << 16)


class SamplingError(StreamTppError):
    """The model gave a law that can't be sampled (NaN or infinite parameters)."""


@dataclass(frozen=True)
class Draws:
    """The uniform numbers of one round: keys int64 [R] and the round's number."""

    keys: Tensor
    round: int

    def accept(self, n: int) -> Tensor:
        """Numbers for acceptance tests, [R, n]."""
        return uniform(self.keys, self.round, _ACCEPT, n)

    def bonus(self) -> Tensor:
        """Numbers for the bonus event, [R, 3]."""
        return uniform(self.keys, self.round, _BONUS, 3)

    def propose(self, rows: Tensor, n: int, first: int, tries: int) -> Tensor:
        """n numbers for each of `tries` proposals after the first `first`, for some rows, [r, tries, n]."""
        numbers = uniform(self.keys[rows], self.round, _PROPOSE, n * tries, n * first)
        return numbers.reshape(len(rows), tries, n)


class Verdict(NamedTuple):
    """accepted int64 [R] drafted events stand, and event (y, k) [R] comes next."""

    accepted: Tensor
    y: Tensor
    k: Tensor


Verify = Callable[[Law, Law, Tensor, Tensor, Tensor, Draws], Verdict]


def joint(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """Gap and type stand or fall as one event; the residual is (p - q)+ over events."""
    n = y.shape[1]
    log_ratio = p.first(n).log_prob(y, k) - q.log_prob(y, k)
    stands = torch.log(draws.accept(n)) < log_ratio
    verdict = bonus(p, accepted_prefix(stands, limits), draws)
    rejected = (verdict.accepted < limits).nonzero()[:, 0]
    if len(rejected):
        place = verdict.accepted[rejected]
        p_next, q_next = p.rows(rejected).at(place), q.rows(rejected).at(place)
        verdict.y[rejected], verdict.k[rejected] = _joint_residual(p_next, q_next, draws, rejected)
    return verdict


def bonus(p: Law, accepted: Tensor, draws: Draws) -> Verdict:
    """The event after the accepted ones, drawn from the target itself."""
    y, k = p.at(accepted).sample(draws.bonus())
    return Verdict(accepted, y, k)


def accepted_prefix(stands: Tensor, limits: Tensor) -> Tensor:
    """Length of the run of True at the start of each row, at most `limits`: stands bool [R, n] -> int64 [R]."""
    place = torch.arange(stands.shape[1], device=stands.device)
    return (stands & (place < limits[:, None])).to(torch.int64).cumprod(1).sum(1)


def _joint_residual(p: Law, q: Law, draws: Draws, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from (p - q)+ / Z: propose from p, keep with probability 1 - min(1, q / p), until every row has its event."""

    def propose(left: Tensor, u: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        p_left, q_left = p.rows(left).expand_tries(u.shape[1]), q.rows(left).expand_tries(u.shape[1])
        y, k = p_left.sample(u[..., :3])
        log_p = p_left.log_prob(y, k)
        require_finite(log_p)
        return torch.log(u[..., 3]) > q_left.log_prob(y, k) - log_p, (y, k)

    return first_kept(propose, draws, rows, numbers=4)


def first_kept(
    propose: Callable[[Tensor, Tensor], tuple[Tensor, tuple[Tensor, Tensor]]], draws: Draws, rows: Tensor, numbers: int
) -> tuple[Tensor, Tensor]:
    """The first kept proposal of each row. There is no cap on the tries: a cap would change the law.

    `propose(left, u)` makes proposals for the rows of index `left` into `rows` from u [r, tries, numbers] and says which
    are kept, bool [r, tries]. The number of tries grows as few rows are left, so that also an overlap near 1 ends soon.
    """
    left = torch.arange(len(rows), device=rows.device)
    y_out = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    k_out = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    first, (tries, most) = 0, _TRIES
    while len(left):
        kept, (y, k) = propose(left, draws.propose(rows[left], numbers, first, tries))
        winner = kept.to(torch.int8).argmax(1, keepdim=True)
        done = kept.any(1)
        y_out[left[done]] = y.gather(1, winner)[done, 0]
        k_out[left[done]] = k.gather(1, winner)[done, 0]
        left, first = left[~done], first + tries
        tries = max(1, min(4 * tries, most // max(1, len(left))))
    return y_out, k_out


def require_finite(values: Tensor) -> None:
    """Raises SamplingError where the target's own draws have no finite density: such a law would never end a loop."""
    if not bool(torch.isfinite(values).all()):
        raise SamplingError(
            "The model gave a law that can't be sampled (NaN or infinite): check its training with `stream-tpp doctor`, "
            "and the times of the history for values far outside what it was trained on."
        )


MODES: dict[str, Verify] = {"joint": joint}
