# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Verification of one row's drafted events: the twin of `stream_tpp.kernels.verification`, mode by mode.

p are the target's laws at n + 1 places of slot s, q the draft's at n. Where `low` is not NaN the first gap is known to be
above it (-inf: nothing is known).
"""

import math

import numpy as np

from stream_tpp.kernels.native.mixture import categorical, log_density, log_survival, sample, sample_above
from stream_tpp.kernels.native.native import native
from stream_tpp.kernels.native.random import stream_state, uniform
from stream_tpp.kernels.random import ACCEPT, BONUS, COINS, RESIDUAL

JOINT, SEQUENTIAL, HIERARCHICAL, BLOCK = range(4)
MODES = {"joint": JOINT, "sequential": SEQUENTIAL, "hierarchical": HIERARCHICAL, "block": BLOCK}


@native
def draw(laws, s, i, low, u0, u1, u2, work):
    """An event (y, k) from the law at (s, i), its gap above `low` where i is 0 and there is one."""
    return draw_gap(laws, s, i, low, u0, u1, work), categorical(u2, laws.log_types[s, i])


@native
def draw_gap(laws, s, i, low, u0, u1, work):
    log_weights, locs, log_scales = laws.log_weights[s, i], laws.locs[s, i], laws.log_scales[s, i]
    if math.isnan(low):
        return sample(u0, u1, log_weights, locs, log_scales)
    # The reference draws so at every place of the first round: from the same numbers come the same events.
    return sample_above(low if i == 0 else -np.inf, u0, u1, log_weights, locs, log_scales, work)


@native
def log_prob(laws, s, i, low, log_tail, y, k, work):
    """Log density of the event (y, k); log_tail is the log chance of a first gap above `low`."""
    return log_prob_gap(laws, s, i, low, log_tail, y, work) + laws.log_types[s, i, k]


@native
def log_prob_gap(laws, s, i, low, log_tail, y, work):
    density = log_density(y, laws.log_weights[s, i], laws.locs[s, i], laws.log_scales[s, i], work)
    if i == 0 and not math.isnan(low):
        return density - log_tail if y >= low else -np.inf
    return density


@native
def tail(laws, s, low, work):
    """Log chance of a first gap above `low`; 0 where there is none."""
    if math.isnan(low):
        return 0.0
    return log_survival(low, laws.log_weights[s, 0], laws.locs[s, 0], laws.log_scales[s, 0], work)


@native
def verify(mode, p, q, s, y, k, limit, low, key, number, work):
    """How many of the drafted events y, k [n], of which `limit` count, stand, and the event after them: (accepted, y, k).

    accepted is -1 where a density is no number: the model gave no law. A ratio of NaN never stands, so that the residual,
    which looks, is asked.
    """
    tails = tail(p, s, low, work), (tail(q, s, low, work) if limit else 0.0)
    if mode == JOINT:
        accepted, log_c = _joint(p, q, s, y, k, limit, low, tails, key, number, work), 0.0
    elif mode == BLOCK:
        accepted, log_c = _block(p, q, s, y, k, limit, low, tails, key, number, work)
    else:
        return _part_by_part(mode == SEQUENTIAL, p, q, s, y, k, limit, low, tails, key, number, work)
    if accepted == limit:
        return _bonus(p, s, limit, low, key, number, work)
    if accepted < 0:
        return -1, 0.0, 0
    return _residual_event(p, q, s, accepted, low, tails, log_c, key, number, work)


@native
def _joint(p, q, s, y, k, limit, low, tails, key, number, work):
    """The run of events that stand, gap and type as one."""
    numbers = stream_state(key, number, ACCEPT)
    for i in range(limit):
        if not math.log(uniform(numbers, i)) < _log_ratio(p, q, s, i, low, tails, y[i], k[i], work):
            return i
    return limit


@native
def _part_by_part(gap_first, p, q, s, y, k, limit, low, tails, key, number, work):
    """Gap, then type, or type, then gap: what stood of the event that is turned down is kept, the other is drawn anew."""
    numbers, n = stream_state(key, number, ACCEPT), len(y)
    for i in range(limit):
        gap_ratio = log_prob_gap(p, s, i, low, tails[0], y[i], work) - log_prob_gap(q, s, i, low, tails[1], y[i], work)
        type_ratio = p.log_types[s, i, k[i]] - q.log_types[s, i, k[i]]
        first, second = (gap_ratio, type_ratio) if gap_first else (type_ratio, gap_ratio)
        first_stood = math.log(uniform(numbers, i)) < first
        if first_stood and math.log(uniform(numbers, n + i)) < second:
            continue
        return _rest(gap_first, first_stood, p, q, s, i, y[i], k[i], low, tails, key, number, work)
    return _bonus(p, s, limit, low, key, number, work)


@native
def _rest(gap_first, first_stood, p, q, s, i, y, k, low, tails, key, number, work):
    last = stream_state(key, number, BONUS)
    u0, u1, u2 = uniform(last, 0), uniform(last, 1), uniform(last, 2)
    if gap_first and first_stood:
        return i, y, _other_type(p, q, s, i, u2)
    if gap_first:
        found, gap = _residual_gap(p, q, s, i, low, tails, key, number, work)
        return (i if found else -1), gap, categorical(u2, p.log_types[s, i])
    if first_stood:
        found, gap = _residual_gap(p, q, s, i, low, tails, key, number, work)
        return (i if found else -1), gap, k
    gap = draw_gap(p, s, i, low, u0, u1, work)
    return (i if math.isfinite(gap) else -1), gap, _other_type(p, q, s, i, u2)


@native
def _block(p, q, s, y, k, limit, low, tails, key, number, work):
    """The longest prefix that can stand, and log c there; see `stream_tpp.kernels.verification.block`."""
    numbers = stream_state(key, number, ACCEPT)
    log_c = np.zeros(limit + 1)
    for i in range(limit):
        log_c[i + 1] = min(log_c[i] + _log_ratio(p, q, s, i, low, tails, y[i], k[i], work), 0.0)
    for i in range(limit, 0, -1):
        if i == limit:
            stands = math.log(uniform(numbers, i - 1)) < log_c[i]
        elif log_c[i] == 0.0:
            stands = True
        else:
            outcome = _two_coins(p, q, s, i, low, tails, log_c[i], key, number, work)
            if outcome < 0:
                return -1, 0.0
            stands = outcome == 1
        if stands:
            return i, log_c[i]
    return 0, 0.0


@native
def _two_coins(p, q, s, i, low, tails, log_c, key, number, work):
    """1 with chance A / (A + 1 - c), A the mass of (c p - q)+ at place i; else 0; -1 where there is no law.

    Two coins, one of chance A, one of chance 1 - c: one of them, picked at random, is tossed until heads come.
    """
    numbers, first = stream_state(key, number, COINS), i << 40
    while True:
        u0, u1, u2 = uniform(numbers, first), uniform(numbers, first + 1), uniform(numbers, first + 2)
        which, toss = uniform(numbers, first + 3), uniform(numbers, first + 4)
        if which < 0.5:
            new, kind = draw(p, s, i, low, u0, u1, u2, work)
            log_ratio = _log_ratio(q, p, s, i, low, (tails[1], tails[0]), new, kind, work)
            if math.isnan(log_ratio) or log_ratio == np.inf:
                return -1
            if toss < math.exp(log_c) - math.exp(log_ratio):
                return 1
        elif toss < -math.expm1(log_c):
            return 0
        first += 5


@native
def _bonus(p, s, i, low, key, number, work):
    last = stream_state(key, number, BONUS)
    y, k = draw(p, s, i, low, uniform(last, 0), uniform(last, 1), uniform(last, 2), work)
    return (i if math.isfinite(y) else -1), y, k


@native
def _residual_event(p, q, s, i, low, tails, log_c, key, number, work):
    """From (c p - q)+ / Z at place i: what p proposes is kept with chance 1 - min(1, q / (c p))."""
    numbers, first = stream_state(key, number, RESIDUAL), 0
    while True:
        u0, u1, u2 = uniform(numbers, first), uniform(numbers, first + 1), uniform(numbers, first + 2)
        y, k = draw(p, s, i, low, u0, u1, u2, work)
        log_p = log_prob(p, s, i, low, tails[0], y, k, work)
        log_q = log_prob(q, s, i, low, tails[1], y, k, work)
        if not math.isfinite(log_p) or math.isnan(log_q):
            return -1, y, k
        if math.log(uniform(numbers, first + 3)) > log_q - log_p - log_c:
            return i, y, k
        first += 4


@native
def _residual_gap(p, q, s, i, low, tails, key, number, work):
    """(whether there is a law, a gap from the residual of the gap alone)."""
    numbers, first = stream_state(key, number, RESIDUAL), 0
    while True:
        y = draw_gap(p, s, i, low, uniform(numbers, first), uniform(numbers, first + 1), work)
        log_p = log_prob_gap(p, s, i, low, tails[0], y, work)
        log_q = log_prob_gap(q, s, i, low, tails[1], y, work)
        if not math.isfinite(log_p) or math.isnan(log_q):
            return False, y
        if math.log(uniform(numbers, first + 2)) > log_q - log_p:
            return True, y
        first += 3


@native
def _other_type(p, q, s, i, u):
    """A type from the residual of the type alone; from p where rounding leaves nothing of the difference."""
    kinds, mass = p.log_types.shape[2], 0.0
    excess = np.empty(kinds)
    for k in range(kinds):
        excess[k] = max(math.exp(p.log_types[s, i, k]) - math.exp(q.log_types[s, i, k]), 0.0)
        mass += excess[k]
    if not mass > 0.0:
        return categorical(u, p.log_types[s, i])
    for k in range(kinds):
        excess[k] = math.log(excess[k] / mass) if excess[k] > 0.0 else -np.inf
    return categorical(u, excess)


@native
def _log_ratio(p, q, s, i, low, tails, y, k, work):
    return log_prob(p, s, i, low, tails[0], y, k, work) - log_prob(q, s, i, low, tails[1], y, k, work)
