"""Attention in machine code, against the formula in float64: nothing beyond a length is seen, not even what is no number."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_tpp.kernels.native.attention import attend

Numbers = NDArray[np.float32]


def expected(query: Numbers, keys: Numbers, values: Numbers, heads: int, null: bool) -> NDArray[np.float64]:
    """keys and values [D, S] of what is seen."""
    depth = len(query) // heads
    q, k, v = (part.astype(np.float64).reshape(heads, depth, *part.shape[1:]) for part in (query, keys, values))
    weights = np.exp(np.einsum("hd,hds->hs", q, k))
    total = weights.sum(1) + (1.0 if null else 0.0)
    attended: NDArray[np.float64] = np.einsum("hs,hds->hd", weights, v) / np.where(total == 0, 1, total)[:, None]
    return attended.reshape(-1)


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize(("width", "heads"), [(64, 8), (42, 3), (12, 1)])
@pytest.mark.parametrize("prefix_length", [0, 1, 31, 32, 100])
def test_it_is_the_formula_over_what_is_seen(null: bool, width: int, heads: int, prefix_length: int) -> None:
    rng = np.random.default_rng(prefix_length)
    slot = np.array([0] * 9 + [2] * 3 + [1])
    seen = np.array([*range(1, 10), 40, 41, 42, 1])
    if null:
        seen = seen - 1
    queries = rng.normal(size=(13, 3 * width)).astype(np.float32)
    prefix_keys, prefix_values = rng.normal(size=(2, width, 128)).astype(np.float32)
    keys, values = rng.normal(size=(2, 3, width, 64)).astype(np.float32)
    prefix_keys[:, prefix_length:] = np.inf
    prefix_values[:, prefix_length:] = 0.0
    weights, out = np.full((13, 128 + 64 + 32), np.nan, np.float32), np.full((13, width), np.nan, np.float32)
    factors = np.zeros(13, np.float32)
    scaled = (queries * np.log2(np.e)).astype(np.float32)
    attend(
        scaled, 13, heads, width, slot, seen, prefix_keys, prefix_values, prefix_length, keys, values, null, weights, factors, out
    )
    for row in range(13):
        mine = keys[slot[row], :, : seen[row]], values[slot[row], :, : seen[row]]
        both = (
            np.concatenate(pair, 1)
            for pair in zip((prefix_keys[:, :prefix_length], prefix_values[:, :prefix_length]), mine, strict=True)
        )
        np.testing.assert_allclose(out[row], expected(queries[row, :width], *both, heads, null), atol=2e-5)
