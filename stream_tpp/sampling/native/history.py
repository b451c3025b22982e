# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Reading a history once for all its paths."""

import numpy as np

from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.vectors import PANEL
from stream_tpp.sampling.native.buffers import new_work
from stream_tpp.sampling.native.network import embed, encode, read_laws

_AT_ONCE = 32


@native
def read_history(weights, y, kinds, times, known_keys, known_values, known, known_state):
    """What the paths after events y, kinds, times [n] (BOS first) share: keys and values [1, L, D, S] of the events, the
    hidden states [2, D] of the last two, and the raw outputs of the head after the last: [3 M] and [K].

    The first `known` columns of known_keys and known_values hold the first events already; at most n - 1, and known_state
    [D] is the state of the last of n - 1. With no event before the last it is zero.
    """
    encoder, n = weights.encoder, len(y)
    layers, width = encoder.qkv.weight.shape[0], encoder.event.bias.shape[0]
    columns = (n + PANEL - 1) // PANEL * PANEL
    keys = np.zeros((1, layers, width, columns), np.float32)
    values = np.zeros((1, layers, width, columns), np.float32)
    keys[0, :, :, :known] = known_keys[0, :, :, :known]
    values[0, :, :, :known] = known_values[0, :, :, :known]
    nothing = np.zeros((layers, width, 0), np.float32)
    work = new_work(weights, min(_AT_ONCE, n - known), columns)
    slot, column = np.zeros(_AT_ONCE, np.int64), np.zeros(_AT_ONCE, np.int64)
    states = np.zeros((2, width), np.float32)
    if known == n - 1:
        states[0] = known_state
    first = known
    while first < n:
        rows = min(_AT_ONCE, n - first)
        for r in range(rows):
            i = first + r
            column[r] = i
            embed(encoder, y[i], kinds[i], times[i], times[0], i, work.x[r], work.clock[r])
        encode(encoder, rows, slot, column, nothing, nothing, ZERO, keys, values, work)
        for i in range(max(first, n - 2), first + rows):
            states[i - (n - 2)] = work.hidden[i - first, :width]
        first += rows
    work.hidden[0, :width] = states[1]
    read_laws(weights.head, work.hidden, ZERO + 1, work)
    head = weights.head
    return keys, values, states, work.mixture[0, : 3 * head.components].copy(), work.types[0, : head.kinds].copy()
