"""Verification: which drafted events stand, and the event that follows them. Every mode gives exactly the target's law.

Shapes: R rows, n places. p is the target's law at n + 1 places (after the pending event and after each drafted one), q
the draft's law at the n places that the drafted events (y, k) [R, n] came from. `limits` int64 [R] <= n: how many drafted
events of a row may stand. The verdict is how many do, and the next event: a bonus from p when all stood, else a draw
from the residual of what was turned down.

Sources: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1 and theorem A.1; for densities Wang et al. 2024
(arXiv 2411.11925); for event times TPP-SD (arXiv 2507.09252), algorithm 1, whose literal reading is biased: gap and type
must not both be drawn from residuals when only one of them was turned down.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from stream_tpp.kernels.dispatch import triton_is_installed
from stream_tpp.kernels.law import Law, MixtureLaw
from stream_tpp.kernels.mixture import categorical
from stream_tpp.kernels.residual import (
    EVENT,
    GAP,
    GAP_GIVEN_TYPE,
    Draws,
    Part,
    log_of_ratio,
    require_finite,
    residual,
    type_residual,
)


class Verdict(NamedTuple):
    """accepted int64 [R] drafted events stand, and event (y float64, k int64) [R] comes next."""

    accepted: Tensor
    y: Tensor
    k: Tensor


Verify = Callable[[Law, Law, Tensor, Tensor, Tensor, Draws], Verdict]


def joint(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """Gap and type stand or fall as one event; the residual is (p - q)+ over events."""
    if y.is_cuda and isinstance(p, MixtureLaw) and isinstance(q, MixtureLaw) and triton_is_installed():
        return _joint_in_one_kernel(p, q, y, k, limits, draws)
    n = y.shape[1]
    stands = draws.accept(n) < p.first(n).log_prob(y, k) - q.log_prob(y, k)
    verdict = bonus(p, accepted_prefix(stands, limits), draws)
    rejected, p_next, q_next = _rejected(p, q, verdict, limits)
    if len(rejected):
        log_c = torch.zeros_like(verdict.y[rejected])
        event = residual(EVENT, p_next, q_next, verdict.k[rejected], log_c, draws, rejected)
        verdict.y[rejected], verdict.k[rejected] = event
    return verdict


def sequential(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """The gap is judged, then the type given the gap: the paper's order.

    A rejected gap is drawn from the gap's residual, with a fresh type from the target; a rejected type is drawn from the
    type's residual, and its gap stays.
    """
    n = y.shape[1]
    log_u = draws.accept(2 * n)
    gap_stands = log_u[:, :n] < p.first(n).log_prob_gap(y) - q.log_prob_gap(y)
    type_stands = log_u[:, n:] < _at(p.first(n).types_given_gap(y), k) - _at(q.types_given_gap(y), k)
    verdict = bonus(p, accepted_prefix(gap_stands & type_stands, limits), draws)
    rejected, p_next, q_next = _rejected(p, q, verdict, limits)
    if len(rejected):
        place = verdict.accepted[rejected]
        gap_stood, gap = gap_stands[rejected, place], y[rejected, place]
        again = (~gap_stood).nonzero()[:, 0]
        gap[again], _ = _residual_part(GAP, p_next, q_next, k[rejected, place], draws, rejected, again)
        log_p = p_next.types_given_gap(gap)
        log_types = torch.where(gap_stood[:, None], type_residual(log_p, q_next.types_given_gap(gap)), log_p)
        verdict.y[rejected], verdict.k[rejected] = gap, categorical(draws.bonus()[rejected, 2], log_types)
    return verdict


def hierarchical(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """The type is judged (coarse), then the gap given the type (fine).

    A rejected type is drawn from the type's residual, with a fresh gap from the target; a rejected gap is drawn from its
    residual given the type, and its type stays.
    """
    n = y.shape[1]
    log_u = draws.accept(2 * n)
    type_stands = log_u[:, :n] < _at(p.first(n).types(), k) - _at(q.types(), k)
    gap_stands = log_u[:, n:] < p.first(n).log_prob_gap_given_type(y, k) - q.log_prob_gap_given_type(y, k)
    verdict = bonus(p, accepted_prefix(type_stands & gap_stands, limits), draws)
    rejected, p_next, q_next = _rejected(p, q, verdict, limits)
    if len(rejected):
        place, u = verdict.accepted[rejected], draws.bonus()[rejected]
        type_stood = type_stands[rejected, place]
        other = categorical(u[:, 2], type_residual(p_next.types(), q_next.types()))
        kind = torch.where(type_stood, k[rejected, place], other)
        gap = p_next.sample_gap_given_type(kind, u[:, :2])
        again = type_stood.nonzero()[:, 0]
        gap[again], _ = _residual_part(GAP_GIVEN_TYPE, p_next, q_next, kind, draws, rejected, again)
        verdict.y[rejected], verdict.k[rejected] = gap, kind
    return verdict


def block(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """The longest prefix that can stand, instead of the first rejection (Sun et al. 2024, arXiv 2403.10444, algorithm 2).

    With c_0 = 1 and c_i = min(1, c_{i-1} p_i / q_i), the last place (`limits`) stands with probability c_i, an earlier
    one with A_i / (A_i + 1 - c_i), A_i the mass of (c_i p - q)+ over the event after it. The last place that stands wins.
    """
    n = y.shape[1]
    log_ratio = p.first(n).log_prob(y, k) - q.log_prob(y, k)
    log_c = torch.zeros(len(y), n + 1, dtype=torch.float64, device=y.device)
    for i in range(n):
        log_c[:, i + 1] = (log_c[:, i] + log_ratio[:, i]).clamp(max=0.0)
    place = torch.arange(n + 1, device=y.device)
    log_u = torch.nn.functional.pad(draws.accept(n), (1, 0), value=-torch.inf)
    at_limit = place == limits[:, None]
    stands = (place == 0) | (at_limit & (log_u < log_c)) | ((place < limits[:, None]) & (log_c == 0.0))
    open_places = (place < limits[:, None]) & ~stands
    accepted = _last_standing(p, q, log_c, stands, open_places, draws)
    verdict = bonus(p, accepted, draws)
    rejected, p_next, q_next = _rejected(p, q, verdict, limits)
    if len(rejected):
        log_c_next = log_c[rejected, accepted[rejected]]
        event = residual(EVENT, p_next, q_next, verdict.k[rejected], log_c_next, draws, rejected)
        verdict.y[rejected], verdict.k[rejected] = event
    return verdict


MODES: dict[str, Verify] = {"joint": joint, "sequential": sequential, "hierarchical": hierarchical, "block": block}


def _joint_in_one_kernel(p: MixtureLaw, q: MixtureLaw, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    from stream_tpp.kernels.triton import verification as kernel

    p_tensors, q_tensors = (
        kernel.Mixtures(law.log_weights, law.locs, law.log_scales, law.log_types, law.y_elapsed, law.log_tail) for law in (p, q)
    )
    verdict = Verdict(*kernel.joint(p_tensors, q_tensors, y, k, limits, draws.keys, draws.round))
    require_finite(verdict.y)
    return verdict


def bonus(p: Law, accepted: Tensor, draws: Draws) -> Verdict:
    """The event after the accepted ones, drawn from the target itself."""
    y, k = p.at(accepted).sample(draws.bonus())
    return Verdict(accepted, y, k)


def accepted_prefix(stands: Tensor, limits: Tensor) -> Tensor:
    """Length of the run of True at the start of each row, at most `limits`: stands bool [R, n] -> int64 [R]."""
    place = torch.arange(stands.shape[1], device=stands.device)
    return (stands & (place < limits[:, None])).to(torch.int64).cumprod(1).sum(1)


def _last_standing(p: Law, q: Law, log_c: Tensor, stands: Tensor, open_places: Tensor, draws: Draws) -> Tensor:
    """Settle the open places by the two-coin algorithm, as far as the last one that stands: int64 [R].

    A coin that draws x from p and shows heads with probability (c - q(x) / p(x))+ has chance A of heads. Pick that coin
    or one with chance 1 - c, toss it, and again until there are heads: the first coin has them with A / (A + 1 - c).
    (Gonçalves, Latuszynski and Roberts 2017, arXiv 1707.00332.)
    """
    n = q.shape[1]
    p_places, q_places = p.first(n).reshape(len(stands) * n), q.reshape(len(stands) * n)
    place = torch.arange(n + 1, device=stands.device)
    first, tries = 0, 2
    while True:
        last = torch.where(stands, place, 0).amax(1)
        row, column = (open_places & (place > last[:, None])).nonzero(as_tuple=True)
        if not len(row):
            return last
        tries = max(1, min(tries, (1 << 16) // len(row)))
        u = draws.coins(row, column, 5, first, tries)
        here = row * n + column
        x = p_places.rows(here).expand_tries(tries), q_places.rows(here).expand_tries(tries)
        event = x[0].sample(u[..., :3])
        log_ratio = log_of_ratio(x[1].log_prob(*event), x[0].log_prob(*event))
        excess = torch.exp(log_c[row, column])[:, None] - torch.exp(log_ratio)
        first_coin = u[..., 3] < 0.5
        heads = torch.where(first_coin, u[..., 4] < excess, u[..., 4] < -torch.expm1(log_c[row, column])[:, None])
        settled, winner = heads.any(1), heads.to(torch.int8).argmax(1, keepdim=True)
        stands[row[settled], column[settled]] = first_coin.gather(1, winner)[settled, 0]
        open_places[row[settled], column[settled]] = False
        first, tries = first + tries, 4 * tries


def _rejected(p: Law, q: Law, verdict: Verdict, limits: Tensor) -> tuple[Tensor, Law, Law]:
    """Rows where a drafted event was turned down, and both laws there."""
    rows = (verdict.accepted < limits).nonzero()[:, 0]
    place = verdict.accepted[rows]
    return rows, p.rows(rows).at(place), q.rows(rows).at(place)


def _residual_part(part: Part, p: Law, q: Law, k: Tensor, draws: Draws, rows: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
    log_c = torch.zeros(len(some), dtype=torch.float64, device=rows.device)
    return residual(part, p.rows(some), q.rows(some), k[some], log_c, draws, rows[some])


def _at(log_types: Tensor, k: Tensor) -> Tensor:
    return log_types.gather(-1, k[..., None])[..., 0]
