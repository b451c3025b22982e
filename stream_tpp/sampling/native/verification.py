# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Verification of one row's drafted events by mode `joint`: the twin of `stream_tpp.sampling.verification.joint`.

p are the target's laws at n + 1 places of slot s, q the draft's at n. Where `low` is not NaN the first gap is known to be
above it (-inf: nothing is known).
"""

import math

import numpy as np

from stream_tpp.kernels.native.mixture import categorical, log_density, log_survival, sample, sample_above
from stream_tpp.kernels.native.native import native
from stream_tpp.kernels.native.random import stream_state, uniform
from stream_tpp.sampling.residual import ACCEPT, BONUS, RESIDUAL


@native
def draw(laws, s, i, low, u0, u1, u2, work):
    """An event (y, k) from the law at (s, i), its gap above `low` where i is 0 and there is one."""
    log_weights, locs, log_scales = laws.log_weights[s, i], laws.locs[s, i], laws.log_scales[s, i]
    if math.isnan(low):
        y = sample(u0, u1, log_weights, locs, log_scales)
    else:
        # The reference draws so at every place of the first round: from the same numbers come the same events.
        y = sample_above(low if i == 0 else -np.inf, u0, u1, log_weights, locs, log_scales, work)
    return y, categorical(u2, laws.log_types[s, i])


@native
def log_prob(laws, s, i, low, log_tail, y, k, work):
    """Log density of the event (y, k); log_tail is the log chance of a first gap above `low`."""
    density = log_density(y, laws.log_weights[s, i], laws.locs[s, i], laws.log_scales[s, i], work)
    if i == 0 and not math.isnan(low):
        density = density - log_tail if y >= low else -np.inf
    return density + laws.log_types[s, i, k]


@native
def tail(laws, s, low, work):
    """Log chance of a first gap above `low`; 0 where there is none."""
    if math.isnan(low):
        return 0.0
    return log_survival(low, laws.log_weights[s, 0], laws.locs[s, 0], laws.log_scales[s, 0], work)


@native
def verify(p, q, s, y, k, limit, low, key, number, work):
    """How many of the drafted events y, k [:limit] stand, and the event after them: (accepted, y, k).

    accepted is -1 where a density is no number: the model gave no law.
    """
    p_tail = tail(p, s, low, work)
    q_tail = tail(q, s, low, work) if limit else 0.0
    acceptance = stream_state(key, number, ACCEPT)
    accepted = 0
    while accepted < limit:
        ratio = log_prob(p, s, accepted, low, p_tail, y[accepted], k[accepted], work) - log_prob(
            q, s, accepted, low, q_tail, y[accepted], k[accepted], work
        )
        # A ratio of NaN does not stand; the residual then says that there is no law.
        if not math.log(uniform(acceptance, accepted)) < ratio:
            break
        accepted += 1
    if accepted == limit:
        last = stream_state(key, number, BONUS)
        new, kind = draw(p, s, accepted, low, uniform(last, 0), uniform(last, 1), uniform(last, 2), work)
        return (accepted if math.isfinite(new) else -1), new, kind
    again = stream_state(key, number, RESIDUAL)
    first = 0
    while True:
        new, kind = draw(p, s, accepted, low, uniform(again, first), uniform(again, first + 1), uniform(again, first + 2), work)
        log_p = log_prob(p, s, accepted, low, p_tail, new, kind, work)
        log_q = log_prob(q, s, accepted, low, q_tail, new, kind, work)
        if not math.isfinite(log_p) or math.isnan(log_q):
            return -1, new, kind
        if math.log(uniform(again, first + 3)) > log_q - log_p:
            return accepted, new, kind
        first += 4
