# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Reading a history once for all its paths."""

import numpy as np

from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.vectors import PANEL
from stream_tpp.sampling.native.buffers import new_work
from stream_tpp.sampling.native.network import embed, encode

_AT_ONCE = 32


@native
def read_history(weights, y, kinds, times, known_keys, known_values, known):
    """Keys and values [1, L, D, S] of events y, kinds, times [n] (BOS first), and the hidden state [D] of the last of them.

    The first `known` columns of known_keys and known_values hold the first events already. With nothing to read the state
    is zero.
    """
    encoder, n = weights.encoder, len(y)
    layers, width = encoder.qkv.weight.shape[0], encoder.event.bias.shape[0]
    columns = (max(n, 1) + PANEL - 1) // PANEL * PANEL
    keys = np.zeros((1, layers, width, columns), np.float32)
    values = np.zeros((1, layers, width, columns), np.float32)
    keys[0, :, :, :known] = known_keys[0, :, :, :known]
    values[0, :, :, :known] = known_values[0, :, :, :known]
    nothing = np.zeros((layers, width, 0), np.float32)
    work = new_work(weights, _AT_ONCE, columns)
    slot, column = np.zeros(_AT_ONCE, np.int64), np.zeros(_AT_ONCE, np.int64)
    hidden = np.zeros(width, np.float32)
    first = known
    while first < n:
        rows = min(_AT_ONCE, n - first)
        for r in range(rows):
            i = first + r
            column[r] = i
            embed(encoder, y[i], kinds[i], times[i], times[0], i, work.x[r], work.clock[r])
        encode(encoder, rows, slot, column, nothing, nothing, ZERO, keys, values, work)
        first += rows
        if first == n:
            hidden[:] = work.hidden[rows - 1, :width]
    return keys, values, hidden
