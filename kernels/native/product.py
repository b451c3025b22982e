# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Linear maps of a few rows by weights that lie ready in panels of 32 columns."""

import numpy as np
from numpy.typing import NDArray

from stream_tpp.kernels.native.native import ZERO, inlined, native
from stream_tpp.kernels.native.vectors import PANEL, PRODUCT_ROW, PRODUCT_ROW_PANELS, PRODUCT_TILES

_1, _2, _3, _4, _5, _6, _7, _8 = PRODUCT_TILES


def panels(weight: NDArray[np.float32], bias: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A layer's weight [N, K] and bias [N] as [N / 32, K, 32] and [N'], N' the next multiple of 32: zeros fill up."""
    n, depth = weight.shape
    count = -(-n // PANEL)
    padded = np.zeros((count * PANEL, depth), np.float32)
    padded[:n] = weight
    padded_bias = np.zeros(count * PANEL, np.float32)
    padded_bias[:n] = bias
    return np.ascontiguousarray(padded.reshape(count, PANEL, depth).transpose(0, 2, 1)), padded_bias


@native
def product(x, rows, weight, bias, y):
    """y[:rows] = x[:rows] @ weight + bias. x [R, >= K], weight [N / 32, K, 32], bias [N], y [R, >= N].

    Every sum runs over k from first to last, whatever the number of rows.
    """
    count, depth, x_step, y_step = weight.shape[0], weight.shape[1], x.shape[1], y.shape[1]
    panel, step = ZERO, depth * PANEL
    while rows == 1 and panel + PRODUCT_ROW_PANELS <= count:
        column = panel * PANEL
        PRODUCT_ROW(x, 0, x_step, weight, panel * step, PANEL, step, depth, bias, column, y, column, y_step)
        panel += PRODUCT_ROW_PANELS
    while panel < count:
        column = panel * PANEL
        multiply(x, 0, x_step, rows, weight, panel * step, PANEL, depth, bias, column, y, column, y_step)
        panel += 1


@inlined
def multiply(x, x_at, x_step, rows, w, w_at, w_step, depth, bias, bias_at, y, y_at, y_step):
    """y[:rows, :32] = x[:rows, :depth] @ w[:depth, :32] + bias, in tiles of at most 8 rows; y_at is where in y the first number
    lies, y_step the way from row to row, and so on."""
    blocks = (rows + 7) // 8
    for block in range(blocks):
        size = (rows + blocks - block - 1) // (blocks - block)
        if size == 8:
            _8(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 7:
            _7(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 6:
            _6(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 5:
            _5(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 4:
            _4(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 3:
            _3(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        elif size == 2:
            _2(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        else:
            _1(x, x_at, x_step, w, w_at, w_step, 0, depth, bias, bias_at, y, y_at, y_step)
        rows, x_at, y_at = rows - size, x_at + size * x_step, y_at + size * y_step
