# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="call-arg"
"""Attention of new events over a prefix that they share and a suffix for each slot.

The twin of `stream_tpp.kernels.attention.cached_attention`. Keys and values lie transposed, [D, S]: the event that was
stored s-th is column s, the heads lie one below the other, and S is a multiple of 32.
"""

import numpy as np

from stream_tpp.kernels.native.functions import exp
from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.vectors import (
    LANES,
    PANEL,
    PRODUCT_TILES,
    WEIGHTED_PAIRS,
    WEIGHTED_TILES,
    exponentiate,
    largest,
    scale_by,
)

_P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8 = PRODUCT_TILES
_W1, _W2, _W3, _W4 = WEIGHTED_TILES
_V1, _V2, _V3, _V4 = WEIGHTED_PAIRS
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_NOTHING = np.zeros(PANEL, np.float32)


@native
def attend(queries, rows, heads, width, slot, seen, prefix_keys, prefix_values, prefix_length, keys, values, null, weights, out):
    """out[:rows, :width] = attention of queries [:rows, :width], in each head, over the first `prefix_length` columns of the
    prefix [D, S] and the first seen[r] columns of keys and values [slots, D, C] in slot[r].

    Rows of one slot stand together, later ones see more. Queries come scaled. With `null` a logit 0 with value zero joins
    every softmax. weights: room for [rows, S + C + 32]. Beyond its length the prefix's values are zero.
    """
    depth = width // heads
    for r in range(rows):
        for d in range(width):
            out[r, d] = _ZERO
    for head in range(heads):
        at = head * depth
        # The logits of a row stand side by side: a panel of the prefix may run over its end, and is written over there.
        _logits(queries, ZERO, rows, at, depth, prefix_keys, -(-prefix_length // PANEL), weights, ZERO)
        first = ZERO
        while first < rows:
            end = _end_of_slot(slot, first, rows)
            own = seen[end - 1]
            _logits(queries, first, end, at, depth, keys[slot[first]], -(-own // PANEL), weights, prefix_length)
            for r in range(first, end):
                count = prefix_length + seen[r]
                _normalise(weights[r], count, null)
                for s in range(_filled(count), prefix_length + _filled(own)):
                    weights[r, s] = _ZERO
            _gather(weights, first, end, prefix_length, _filled(own) // LANES, values[slot[first]], at, depth, out)
            first = end
        _gather(weights, ZERO, rows, ZERO, _filled(prefix_length) // LANES, prefix_values, at, depth, out)


@native
def _filled(count):
    """`count` numbers and those that fill their last vector up."""
    return (count + LANES - 1) // LANES * LANES


@native
def _end_of_slot(slot, first, rows):
    end = first + 1
    while end < rows and slot[end] == slot[first]:
        end += 1
    return end


@native
def _logits(queries, first, end, at, depth, keys, panels, weights, column):
    """weights[first:end, column:] = queries[first:end, at : at + depth] @ keys[at : at + depth], for so many panels."""
    x_step, w_step, y_step = queries.shape[1], keys.shape[1], weights.shape[1]
    for panel in range(panels):
        w_at, y_column = at * w_step + panel * PANEL, column + panel * PANEL
        r = first
        while r < end:
            x_at, y_at, size = r * x_step + at, r * y_step + y_column, min(end - r, 8)
            if size == 8:
                _P8(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 7:
                _P7(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 6:
                _P6(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 5:
                _P5(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 4:
                _P4(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 3:
                _P3(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            elif size == 2:
                _P2(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            else:
                _P1(queries, x_at, x_step, keys, w_at, w_step, depth, _NOTHING, 0, weights, y_at, y_step)
            r += size


@native
def _normalise(weights, count, null):
    """Softmax, in place, of `count` logits; zeros fill the last vector up."""
    top = _ZERO if null else np.float32(-np.inf)
    total = _ZERO
    if count:
        top = largest(weights, 0, count, top)
        total = exponentiate(weights, 0, count, top)
    if null:
        total += exp(-top)
    if count:
        scale_by(weights, 0, count, _ONE / total)


@native
def _gather(weights, first, end, column, vectors, values, at, depth, out):
    """out[first:end, at : at + depth] += weights[first:end, column:] @ values[at : at + depth]^T; depth is even."""
    if vectors == 0:
        return
    x_step, w_step, y_step = weights.shape[1], values.shape[1], out.shape[1]
    r = first
    while r < end:
        x_at, size = r * x_step + column, min(end - r, 4)
        d = 0
        while d < depth:
            w_at, y_at, four = (at + d) * w_step, r * y_step + at + d, depth - d >= 4
            if size == 4 and four:
                _W4(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif size == 3 and four:
                _W3(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif size == 2 and four:
                _W2(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif four:
                _W1(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif size == 4:
                _V4(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif size == 3:
                _V3(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            elif size == 2:
                _V2(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            else:
                _V1(weights, x_at, x_step, values, w_at, w_step, vectors, out, y_at, y_step)
            d += 4 if four else 2
        r += size
