# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The uniform numbers of `stream_tpp.kernels.random` inside a kernel, bit for bit."""

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)
_STREAMS = tl.constexpr(8)


@triton.jit
def _mix(x):
    x = (x ^ (x >> 30)) * _MIX_1
    x = (x ^ (x >> 27)) * _MIX_2
    return x ^ (x >> 31)


@triton.jit
def stream_state(key, sampling_round, stream):
    """Where the numbers of (row key, round, stream) start; integers, the key int64."""
    return _mix(key.to(tl.uint64) + (sampling_round * _STREAMS + stream + 1).to(tl.uint64) * _GOLDEN)


@triton.jit
def uniform(state, index):
    """Number `index` (int64, from 0) of a stream, float64 strictly inside (0, 1)."""
    bits = _mix(state + (index + 1).to(tl.uint64) * _GOLDEN) >> 12
    return (bits.to(tl.int64).to(tl.float64) + 0.5) * 2.0**-52
