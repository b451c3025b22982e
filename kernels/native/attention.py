# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Attention of one new event over a prefix that paths share and a suffix of its own.

The twin of `stream_tpp.kernels.attention.cached_attention`. Keys and values lie transposed, [D, S]: the event that was
stored s-th is column s, the heads lie one below the other, and S is a multiple of 16.
"""

import numpy as np

from stream_tpp.kernels.native.functions import exp
from stream_tpp.kernels.native.native import native, native_sum
from stream_tpp.kernels.native.vectors import FOUR_COLUMNS, FOUR_ROWS, LANES, ONE_COLUMN, ONE_ROW, largest

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@native
def attend(query, heads, prefix_keys, prefix_values, prefix_length, keys, values, length, null, weights, out):
    """out [D] = attention of query [D] over the first `prefix_length` and the first `length` columns, in each head.

    The query comes scaled. With `null` a logit 0 with value zero joins every softmax. weights: room for S + S' numbers.
    """
    depth = len(query) // heads
    before, own = (prefix_length + LANES - 1) // LANES, (length + LANES - 1) // LANES
    second = before * LANES
    for head in range(heads):
        first = head * depth
        _dots_with_keys(query, first, depth, prefix_keys, before, weights, 0)
        _dots_with_keys(query, first, depth, keys, own, weights, second)
        scale = _softmax(weights, prefix_length, second, second + length, second + own * LANES, null)
        for d in range(first, first + depth):
            out[d] = _ZERO
        _add_weighted(weights, 0, before, prefix_values, first, depth, out)
        _add_weighted(weights, second, own, values, first, depth, out)
        for d in range(first, first + depth):
            out[d] *= scale


@native
def _dots_with_keys(query, first, depth, keys, vectors, out, out_at):
    step = keys.shape[1]
    fours, at = vectors // 4, first * step
    if fours:
        FOUR_COLUMNS(query, first, keys, at, step, depth, out, out_at, fours)
    if vectors > 4 * fours:
        done = 4 * fours * LANES
        ONE_COLUMN(query, first, keys, at + done, step, depth, out, out_at + done, vectors - 4 * fours)


@native
def _add_weighted(weights, weights_at, vectors, values, first, depth, out):
    if vectors == 0:
        return
    step = values.shape[1]
    fours = depth // 4
    if fours:
        FOUR_ROWS(weights, weights_at, values, first * step, step, fours, out, first, vectors)
    if depth > 4 * fours:
        rest = first + 4 * fours
        ONE_ROW(weights, weights_at, values, rest * step, step, depth - 4 * fours, out, rest, vectors)


@native_sum
def _softmax(weights, first_end, second, second_end, end, null):
    """weights = exp(logits - top) between 0 and first_end and between second and second_end, 0 elsewhere; 1 / their sum."""
    for s in range(first_end, second):
        weights[s] = -np.inf
    for s in range(second_end, end):
        weights[s] = -np.inf
    top = largest(weights, end // LANES) if end else _ZERO
    if null and top < _ZERO:
        top = _ZERO
    total = exp(-top) if null else _ZERO
    for s in range(end):
        weight = exp(weights[s] - top)
        weights[s] = weight
        total += weight
    for s in range(first_end, second):
        weights[s] = _ZERO
    for s in range(second_end, end):
        weights[s] = _ZERO
    return _ONE / total
