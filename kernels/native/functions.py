# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Activations and norms of float32 rows, to about 2e-7, in arithmetic that runs on whole vectors."""

import numpy as np

from stream_tpp.kernels.native.native import native, native_sum
from stream_tpp.kernels.native.vectors import power_of_two

_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_LOWEST, _HIGHEST = np.float32(-87.0), np.float32(88.0)
_SHIFT = np.float32(1.5 * 2**23)
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Cephes, expf.
_E0, _E1, _E2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E3, _E4, _E5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
# Abramowitz and Stegun (1964), 7.1.26.
_SQRT_HALF, _P = np.float32(0.70710678), np.float32(0.3275911)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)
_EPSILON = np.float32(1e-5)


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
        row = x[r]
        for i in range(width):
            z = row[i] * _SQRT_HALF
            far = -z if z < _ZERO else z
            t = _ONE / (_ONE + _P * far)
            tail = ((((_A5 * t + _A4) * t + _A3) * t + _A2) * t + _A1) * t * exp(-z * z)
            row[i] = _HALF * row[i] * (tail if z < _ZERO else _TWO - tail)


@native_sum
def layer_norm(x, rows, width, gain, shift, y):
    """y[:rows, :width] = layer norm of x[:rows, :width], with gain and shift [width]."""
    for r in range(rows):
        source, target = x[r], y[r]
        total = _ZERO
        for i in range(width):
            total += source[i]
        mean = total / np.float32(width)
        squares = _ZERO
        for i in range(width):
            away = source[i] - mean
            squares += away * away
        scale = _ONE / np.sqrt(squares / np.float32(width) + _EPSILON)
        for i in range(width):
            target[i] = (source[i] - mean) * scale * gain[i] + shift[i]


@native
def add(x, rows, width, y):
    """x[:rows, :width] += y."""
    for r in range(rows):
        target, source = x[r], y[r]
        for i in range(width):
            target[i] += source[i]
