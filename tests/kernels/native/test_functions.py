"""Products, activations and norms in machine code, against torch's; a row never depends on the rows beside it."""

import numpy as np
import pytest
import torch

from stream_tpp.kernels.native import functions
from stream_tpp.kernels.native.product import panels, product


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize(("n", "depth"), [(1, 1), (32, 64), (50, 17), (192, 64)])
def test_a_product_is_the_linear_map_and_each_row_the_same_alone(rows: int, n: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(n, depth)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    x = rng.normal(size=(rows, depth + 3)).astype(np.float32)
    packed = panels(weight, bias)
    y = np.full((rows, len(packed[1])), np.nan, np.float32)
    product(x, rows, *packed, y)
    np.testing.assert_allclose(y[:, :n], x[:, :depth].astype(np.float64) @ weight.T + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(y[:, n:], 0.0)
    for row in range(rows):
        alone = np.zeros((1, len(packed[1])), np.float32)
        product(x[row : row + 1], 1, *packed, alone)
        np.testing.assert_array_equal(alone[0], y[row])


def test_exp_sigmoid_and_tanh() -> None:
    x = np.linspace(-86, 87, 4001).astype(np.float32)
    np.testing.assert_allclose([functions.exp(value) for value in x], np.exp(x.astype(np.float64)), rtol=2e-7)
    np.testing.assert_allclose([functions.tanh(value) for value in x], np.tanh(x), atol=3e-7)
    np.testing.assert_allclose([functions.sigmoid(value) for value in x], torch.sigmoid(torch.tensor(x)), atol=3e-7)


@pytest.mark.parametrize("width", [16, 42, 256])
def test_gelu_and_layer_norm(width: int) -> None:
    rng = np.random.default_rng(1)
    full = -(-width // 16) * 16
    x = (rng.normal(size=(5, full)) * 4).astype(np.float32)
    gain, shift = rng.normal(size=(2, 3, full)).astype(np.float32)
    y = np.zeros_like(x)
    functions.layer_norm(x, 5, width, gain, shift, 2, y)
    expected = torch.nn.functional.layer_norm(
        torch.tensor(x[:, :width]), (width,), torch.tensor(gain[2, :width]), torch.tensor(shift[2, :width])
    )
    np.testing.assert_allclose(y[:, :width], expected, atol=3e-6)
    bent = x.copy()
    functions.gelu(bent, 5, width)
    np.testing.assert_allclose(bent[:, :width], torch.nn.functional.gelu(torch.tensor(x[:, :width])), atol=2e-6)
