# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="call-arg"
"""Activations and norms of float32 rows, to about 2e-7, in arithmetic that runs on whole vectors."""

import numpy as np

from stream_tpp.kernels.native.native import native
from stream_tpp.kernels.native.vectors import EXP, LN2_HIGH, LN2_LOW, LOG2_E, gelu_row, norm_row, power_of_two

_ONE, _TWO = np.float32(1.0), np.float32(2.0)
_LOWEST, _HIGHEST = np.float32(-87.0), np.float32(88.0)
_SHIFT = np.float32(1.5 * 2**23)
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(LOG2_E), np.float32(LN2_HIGH), np.float32(LN2_LOW)
_E0, _E1, _E2, _E3, _E4, _E5 = (np.float32(coefficient) for coefficient in EXP)


@native
def exp(x):
    """e^x, float32; x is taken to lie between -87 and 88. NaN stays NaN."""
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    shifted = x * _LOG2_E + _SHIFT
    n = shifted - _SHIFT
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    return (p * r * r + r + _ONE) * power_of_two(shifted)


@native
def sigmoid(x):
    return _ONE / (_ONE + exp(-x))


@native
def tanh(x):
    return _ONE - _TWO / (exp(_TWO * x) + _ONE)


@native
def gelu(x, rows, width):
    """GELU in place of x[:rows, :width], by the error function as torch has it."""
    for r in range(rows):
        gelu_row(x, r * x.shape[1], width)


@native
def layer_norm(x, rows, width, gain, shift, layer, y):
    """y[:rows, :width] = layer norm of x[:rows, :width], with gain and shift [L, D] of one layer; D is a multiple of 16."""
    for r in range(rows):
        norm_row(x, r * x.shape[1], width, gain, shift, layer * gain.shape[1], y, r * y.shape[1])


@native
def add(x, rows, width, y):
    """x[:rows, :width] += y."""
    for r in range(rows):
        target, source = x[r], y[r]
        for i in range(width):
            target[i] += source[i]
