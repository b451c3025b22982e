# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="call-arg"
"""Attention of new events over a prefix that they share and a suffix for each slot.

The twin of `stream_tpp.kernels.attention.cached_attention`. Keys and values lie transposed, [D, S]: the event that was
stored s-th is column s, the heads lie one below the other, and S is a multiple of 32.
"""

import numpy as np

from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.product import multiply
from stream_tpp.kernels.native.vectors import LANES, PANEL, WEIGHTED_PAIRS, WEIGHTED_ROW, WEIGHTED_TILES, softmax

_1, _2, _3, _4 = WEIGHTED_TILES
_PAIR_1, _PAIR_2, _PAIR_3, _PAIR_4 = WEIGHTED_PAIRS
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_NOTHING = np.zeros(PANEL, np.float32)


@native
def attend(
    queries, rows, heads, width, slot, seen, prefix_keys, prefix_values, prefix_length, keys, values, null, weights, factors, out
):
    """out[:rows, :width] = attention of queries [:rows, :width], in each head, over the first `prefix_length` columns of the
    prefix [D, S] and the first seen[r] columns of keys and values [slots, D, C] in slot[r].

    Rows of one slot stand together, later ones see more. Queries come scaled, by log2(e) too: a softmax is of powers of 2. With
    `null` a logit 0 with value zero joins every softmax. weights: room for [rows, S + C + 32], factors: for [rows]. Beyond
    its length the prefix's values are zero.
    """
    depth = width // heads
    for head in range(heads):
        at = head * depth
        # The logits of a row stand side by side: a panel of the prefix may run over its end, and is written over there.
        _logits(queries, ZERO, rows, at, depth, prefix_keys, -(-prefix_length // PANEL), weights, ZERO)
        first = ZERO
        while first < rows:
            end = end_of_slot(slot, first, rows)
            own = seen[end - 1]
            _logits(queries, first, end, at, depth, keys[slot[first]], -(-own // PANEL), weights, prefix_length)
            for r in range(first, end):
                count = prefix_length + seen[r]
                factors[r] = softmax(weights, r * weights.shape[1], count, null) if count else _ONE
                for s in range(_filled(count), prefix_length + _filled(own)):
                    weights[r, s] = _ZERO
            _gather(weights, first, end, prefix_values, prefix_length, values[slot[first]], own, at, depth, factors, out)
            first = end


@native
def _filled(count):
    """`count` numbers and those that fill their last vector up."""
    return (count + LANES - 1) // LANES * LANES


@native
def end_of_slot(slot, first, rows):
    """One past the last of the rows from `first` on that stand together in one slot."""
    end = first + 1
    while end < rows and slot[end] == slot[first]:
        end += 1
    return end


@native
def _logits(queries, first, end, at, depth, keys, panels, weights, column):
    """weights[first:end, column:] = queries[first:end, at : at + depth] @ keys[at : at + depth], for so many panels."""
    x_step, y_step = queries.shape[1], weights.shape[1]
    for panel in range(panels):
        x_at, w_at = first * x_step + at, at * keys.shape[1] + panel * PANEL
        y_at = first * y_step + column + panel * PANEL
        multiply(queries, x_at, x_step, end - first, keys, w_at, keys.shape[1], depth, _NOTHING, 0, weights, y_at, y_step)


@native
def _gather(weights, first, end, prefix_values, prefix_length, values, own, at, depth, factors, out):
    """out[r, at : at + depth] = factors[r] (weights[r] @ values[at : at + depth]^T) for r in first .. end - 1, where the values
    are `prefix_length` of the prefix and `own` ones; depth is even."""
    x, x_step, w_step, v_step, y_step = weights, weights.shape[1], prefix_values.shape[1], values.shape[1], out.shape[1]
    n, m = _filled(prefix_length) // LANES, _filled(own) // LANES
    w, gap, v, y = prefix_values, prefix_length, values, out
    r = first
    while r < end:
        x_at, size = r * x_step, min(end - r, 4)
        d = 0
        while d < depth:
            w_at, v_at, y_at = (at + d) * w_step, (at + d) * v_step, r * y_step + at + d
            left = depth - d
            if size == 1 and left >= 8:
                WEIGHTED_ROW(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                d += 8
            elif left >= 4:
                if size == 4:
                    _4(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                elif size == 3:
                    _3(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                elif size == 2:
                    _2(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                else:
                    _1(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                d += 4
            else:
                if size == 4:
                    _PAIR_4(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                elif size == 3:
                    _PAIR_3(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                elif size == 2:
                    _PAIR_2(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                else:
                    _PAIR_1(x, x_at, x_step, w, w_at, w_step, n, gap, v, v_at, v_step, m, factors, r, y, y_at, y_step)
                d += 2
        r += size
