# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""The uniform numbers of `stream_tpp.kernels.random`, one at a time, bit for bit. Everything is uint64."""

import numpy as np

from stream_tpp.kernels.native.native import native

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STREAMS = 8


@native
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@native
def stream_state(key, sampling_round, stream):
    """Where the numbers of (row key, round, stream) start."""
    return _mix(key + np.uint64(sampling_round * _STREAMS + stream + 1) * _GOLDEN)


@native
def uniform(state, index):
    """Number `index` (from 0) of a stream, float64 strictly inside (0, 1)."""
    bits = _mix(state + np.uint64(index + 1) * _GOLDEN) >> np.uint64(12)
    return (np.float64(bits) + 0.5) * 2.0**-52
