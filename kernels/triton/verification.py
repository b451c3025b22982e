# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""A round's joint verification in one kernel: `stream_tpp.kernels.verification.joint` where both laws are mixtures.

One program a row. It walks along the drafted events until one is turned down, and draws the event that comes next: a
bonus from p, or from the residual (p - q)+ / Z by proposals from p until one is kept. Its uniform numbers are those of the
reference, so it gives the reference's verdict, up to the rounding of a density.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stream_tpp.kernels.random import ACCEPT, BONUS, RESIDUAL
from stream_tpp.kernels.triton.launch import Launch
from stream_tpp.kernels.triton.mixture import categorical, density_of, drawn, drawn_above, load_components, pick
from stream_tpp.kernels.triton.random import stream_state, uniform

_ACCEPT = tl.constexpr(ACCEPT)
_RESIDUAL = tl.constexpr(RESIDUAL)
_BONUS = tl.constexpr(BONUS)
_NOTHING = tl.constexpr(float("-inf"))
_INFINITY = tl.constexpr(float("inf"))
_NUMBERS_PER_WARP = 256


class Mixtures(NamedTuple):
    """Laws of the next event at [R, n] places: the tensors of `stream_tpp.kernels.law.MixtureLaw`.

    log_weights, locs, log_scales [R, n, M], log_types [R, n, K]; y_elapsed, log_tail [R, n] or None. float64.
    """

    log_weights: Tensor
    locs: Tensor
    log_scales: Tensor
    log_types: Tensor
    y_elapsed: Tensor | None
    log_tail: Tensor | None


def joint(
    p: Mixtures, q: Mixtures, y: Tensor, k: Tensor, limits: Tensor, keys: Tensor, sampling_round: int
) -> tuple[Tensor, Tensor, Tensor]:
    """How many of the drafted events (y, k) [R, n] stand, at most `limits` [R], and the event that comes next.

    p at [R, n + 1] places, q at [R, n]; keys int64 [R]. Returns accepted int64, y float64 and k int64, [R]; y is NaN where a
    law is no law (NaN or infinite), which would never end.
    """
    launch, verdict = prepared(p, q, y, k, limits, keys, sampling_round)
    launch.run()
    return verdict


def prepared(
    p: Mixtures, q: Mixtures, y: Tensor, k: Tensor, limits: Tensor, keys: Tensor, sampling_round: int
) -> tuple[Launch, tuple[Tensor, Tensor, Tensor]]:
    """The launch of `joint_kernel`, and the tensors that it fills."""
    rows, places = y.shape
    verdict = torch.empty_like(limits), torch.empty(rows, dtype=torch.float64, device=y.device), torch.empty_like(limits)
    blocks = [triton.next_power_of_2(t.shape[-1]) for t in (p.log_weights, q.log_weights, p.log_types)]
    arguments = {
        "p": _contiguous(p),
        "q": _contiguous(q),
        **{name: t.contiguous() for name, t in {"y": y, "k": k, "limits": limits, "keys": keys}.items()},
        **dict(zip(("accepted", "y_next", "k_next"), verdict, strict=True)),
        "sampling_round": sampling_round,
        "places": places,
        "P_COMPONENTS": p.log_weights.shape[-1],
        "Q_COMPONENTS": q.log_weights.shape[-1],
        "TYPES": p.log_types.shape[-1],
        **dict(zip(("P_BLOCK", "Q_BLOCK", "TYPE_BLOCK"), blocks, strict=True)),
        "TRIES": max(1, min(16, _NUMBERS_PER_WARP // max(blocks))),
    }
    warps = min(8, triton.cdiv(max(blocks), _NUMBERS_PER_WARP))
    return Launch(joint_kernel, rows, arguments, warps), verdict


def _contiguous(law: Mixtures) -> Mixtures:
    return Mixtures._make(None if t is None else t.contiguous() for t in law)


@triton.jit(do_not_specialize=["sampling_round", "places"])
def joint_kernel(
    p,
    q,
    y,
    k,
    limits,
    keys,
    accepted,
    y_next,
    k_next,
    sampling_round,
    places,
    P_COMPONENTS: tl.constexpr,
    Q_COMPONENTS: tl.constexpr,
    TYPES: tl.constexpr,
    P_BLOCK: tl.constexpr,
    Q_BLOCK: tl.constexpr,
    TYPE_BLOCK: tl.constexpr,
    TRIES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    key, limit = tl.load(keys + row), tl.load(limits + row)
    p_first, q_first = row * (places + 1), row * places

    numbers = stream_state(key, sampling_round, _ACCEPT)
    place = limit * 0
    standing = place < limit
    while standing:
        gap, kind = tl.load(y + q_first + place), tl.load(k + q_first + place)
        p_law = load_law(p, p_first + place, P_COMPONENTS, P_BLOCK)
        q_law = load_law(q, q_first + place, Q_COMPONENTS, Q_BLOCK)
        log_p = log_prob(p_law, p.log_types + (p_first + place) * TYPES, gap, kind)
        log_q = log_prob(q_law, q.log_types + (q_first + place) * TYPES, gap, kind)
        stands = tl.log(uniform(numbers, place)) < log_p - log_q
        place += stands.to(tl.int64)
        standing = stands & (place < limit)

    # The bonus is a first proposal that is kept whatever q says.
    bonus = place == limit
    numbers = stream_state(key, sampling_round, tl.where(bonus, _BONUS, _RESIDUAL))
    p_law = each_try(load_law(p, p_first + place, P_COMPONENTS, P_BLOCK))
    q_place = q_first + tl.minimum(place, places - 1)
    q_law = each_try(load_law(q, q_place, Q_COMPONENTS, Q_BLOCK))
    p_types, q_types = p.log_types + (p_first + place) * TYPES, q.log_types + q_place * TYPES
    type_index = tl.arange(0, TYPE_BLOCK)
    log_types = tl.expand_dims(tl.load(p_types + type_index, type_index < TYPES, _NOTHING), 0)
    index = tl.arange(0, TRIES)
    first = (index * 4).to(tl.int64)
    gap, kind = uniform(numbers, first), first
    winner = tl.min(index, 0) + TRIES
    while winner == TRIES:
        gap, kind = sample(p_law, log_types, numbers, first)
        log_p = log_prob(p_law, p_types, gap, kind)
        log_ratio = log_prob(q_law, q_types, gap, kind) - log_p
        no_law = ~bonus & ((tl.abs(log_p) == _INFINITY) | (log_ratio != log_ratio))
        gap = tl.where(no_law, float("nan"), gap)
        kept = bonus | no_law | (tl.log(uniform(numbers, first + 3)) > log_ratio)
        winner = tl.min(tl.where(kept, index, TRIES), 0)
        first += 4 * TRIES
    tl.store(accepted + row, place)
    tl.store(y_next + row, pick(gap, winner))
    tl.store(k_next + row, tl.sum(tl.where(index == winner, kind, 0), 0))


@triton.jit
def each_try(law):
    """The law of one place, for a block of tries at it."""
    components, low, log_tail = law
    log_weights, locs, log_scales = components
    components = tl.expand_dims(log_weights, 0), tl.expand_dims(locs, 0), tl.expand_dims(log_scales, 0)
    return components, low, log_tail


@triton.jit
def load_law(law, place, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr):
    """The gap's law at a place: components, and the quiet time with its log chance where the law knows of one."""
    components = load_components(law.log_weights, law.locs, law.log_scales, place, COMPONENTS, BLOCK)
    quiet = (None, None) if law.y_elapsed is None else (tl.load(law.y_elapsed + place), tl.load(law.log_tail + place))
    return components, quiet[0], quiet[1]


@triton.jit
def log_prob(law, log_types, gap, kind):
    """Log density of one event; log_types points at the first type's."""
    components, low, log_tail = law
    log_weights, locs, log_scales = components
    density = density_of(gap if len(log_weights.shape) == 1 else tl.expand_dims(gap, -1), log_weights, locs, log_scales)
    if low is not None:
        density = tl.where(gap >= low, density - log_tail, _NOTHING)
    return density + tl.load(log_types + kind)


@triton.jit
def sample(law, log_types, numbers, first):
    """An event from three numbers of a stream: component and gap, then the type."""
    components, low, _ = law
    log_weights, locs, log_scales = components
    u_component, u_within = uniform(numbers, first), uniform(numbers, first + 1)
    if low is None:
        gap = drawn(u_component, u_within, log_weights, locs, log_scales)
    else:
        gap = drawn_above(low, u_component, u_within, log_weights, locs, log_scales)
    return gap, categorical(uniform(numbers, first + 2), log_types).to(tl.int64)
