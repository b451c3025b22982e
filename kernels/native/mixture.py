# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Mixtures of normals at one place, float64: the twin of `stream_tpp.kernels.mixture`.

log_weights (normalised), locs, log_scales [M]; y and the uniform numbers are single numbers.
"""

import math

import numpy as np

from stream_tpp.kernels.native.native import native
from stream_tpp.kernels.native.normal import log_ndtr, log_ndtri, ndtri

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_BELOW_ONE = 1.0 - 2.0**-52
_FARTHEST, _CLOSE, _STEPS = 2.0**64, 2.0**-48, 256


@native
def log_sum_exp(values):
    """-inf where there is nothing but -inf."""
    top = -np.inf
    for value in values:
        # A NaN must come out as NaN.
        top = top if value <= top else value
    if top == -np.inf:
        return top
    total = 0.0
    for value in values:
        total += math.exp(value - top)
    return top + math.log(total)


@native
def log_density(y, log_weights, locs, log_scales, work):
    """Log density of y."""
    for m in range(len(locs)):
        z = (y - locs[m]) * math.exp(-log_scales[m])
        work[m] = log_weights[m] - log_scales[m] - 0.5 * z * z
    return log_sum_exp(work[: len(locs)]) - _HALF_LOG_2PI


@native
def log_survival(y, log_weights, locs, log_scales, work):
    """Log of the chance of a value above y; y may be -inf."""
    for m in range(len(locs)):
        work[m] = log_weights[m] + log_ndtr(-(y - locs[m]) * math.exp(-log_scales[m]))
    return log_sum_exp(work[: len(locs)])


@native
def sample(u_component, u_within, log_weights, locs, log_scales):
    """A draw: the component from one uniform number, the value in it from the other."""
    m = categorical(u_component, log_weights)
    return locs[m] + math.exp(log_scales[m]) * ndtri(u_within)


@native
def sample_above(low, u_component, u_within, log_weights, locs, log_scales, work):
    """A draw given that it is above `low` (which may be -inf), however small the chance of that was."""
    for m in range(len(locs)):
        work[m] = log_weights[m] + log_ndtr(-(low - locs[m]) * math.exp(-log_scales[m]))
    total = log_sum_exp(work[: len(locs)])
    for m in range(len(locs)):
        work[m] -= total
    m = categorical(u_component, work[: len(locs)])
    log_tail = log_ndtr(-(low - locs[m]) * math.exp(-log_scales[m]))
    y = locs[m] - math.exp(log_scales[m]) * log_ndtri(log_tail + math.log(u_within))
    return low if y < low else y


@native
def quantile(level, low, log_weights, locs, log_scales, work):
    """The y below which a value lies with chance `level`, given that it is above `low` (which may be -inf).

    Newton's method on the log survival, within bounds that close in on the quantile.
    """
    wanted = log_survival(low, log_weights, locs, log_scales, work) + math.log1p(-level)
    below, above = -1.0, 1.0
    while log_survival(below, log_weights, locs, log_scales, work) < wanted and below > -_FARTHEST:
        below *= 2.0
    while log_survival(above, log_weights, locs, log_scales, work) > wanted and above < _FARTHEST:
        above *= 2.0
    y = 0.5 * (below + above)
    for step in range(_STEPS):
        tail = log_survival(y, log_weights, locs, log_scales, work)
        if tail > wanted:
            below = y
        else:
            above = y
        forward = (tail - wanted) * math.exp(tail - log_density(y, log_weights, locs, log_scales, work))
        if min(abs(forward), above - below) <= _CLOSE * max(1.0, abs(y)):
            break
        y += forward
        # Now and then the bounds are halved, for a mixture in which Newton's steps wander about.
        if step % 8 == 7 or not below < y < above:
            y = 0.5 * (below + above)
    return y


@native
def quantiles(levels, low, log_weights, locs, log_scales):
    """`quantile` of each of the mixtures [B, M] at each of the levels [Q]: [B, Q]. low [B]."""
    found, work = np.empty((len(low), len(levels))), np.empty(log_weights.shape[1])
    for row in range(len(low)):
        for q in range(len(levels)):
            found[row, q] = quantile(levels[q], low[row], log_weights[row], locs[row], log_scales[row], work)
    return found


@native
def categorical(u, log_probabilities):
    """Index drawn by inversion. One of probability zero is never drawn."""
    total = 0.0
    for log_probability in log_probabilities:
        total += math.exp(log_probability)
    target = u * (total * _BELOW_ONE)
    cumulative, last = 0.0, len(log_probabilities) - 1
    for k in range(last):
        cumulative += math.exp(log_probabilities[k])
        if cumulative > target:
            return k
    return last


@native
def log_softmax(logits, out):
    """out = logits (float32) normalised, float64."""
    for k in range(len(logits)):
        out[k] = logits[k]
    total = log_sum_exp(out[: len(logits)])
    for k in range(len(logits)):
        out[k] -= total
