# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Room that a run works in: allocated once for it, never within a round."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_tpp.kernels.native.native import native

Array = NDArray[Any]


class Work(NamedTuple):
    """Rows of a pass: x and clock enter the encoder, hidden leaves it; mixture and types are a head's raw outputs, float32.

    The others hold what lies between two steps; weights [rows, S + C], factors and seen are attention's, scratch [M] float64.
    """

    x: Array
    clock: Array
    hidden: Array
    mixture: Array
    types: Array
    narrow: Array
    wide: Array
    qkv: Array
    gates: Array
    attended: Array
    weights: Array
    factors: Array
    seen: Array
    scratch: Array


class Laws(NamedTuple):
    """Laws of the next event at places (s, i), float64, as `stream_tpp.kernels.law.MixtureLaw` has them."""

    log_weights: Array
    locs: Array
    log_scales: Array
    log_types: Array
    log_mass: Array


@native
def new_work(weights, rows, columns):
    encoder, draft = weights.encoder, weights.draft
    width = 0
    width = max(width, weights.head.types_hidden.bias.shape[0])
    width = max(width, draft.head.types_hidden.bias.shape[0])
    width = max(width, draft.start.bias.shape[0])
    width = max(width, draft.outlook_down.bias.shape[0])
    width = max(width, encoder.qkv.bias.shape[1] // 3 + 32)
    wide = max(2 * width, draft.outlook_up.bias.shape[0])
    if not encoder.clocked:
        wide = max(wide, encoder.up.bias.shape[1])
    mixture = max(weights.head.mixture.bias.shape[0], draft.head.mixture.bias.shape[0])
    gates = max(draft.from_event.bias.shape[0], encoder.qkv.bias.shape[1])
    return Work(
        np.zeros((rows, width), np.float32),
        np.zeros((rows, width), np.float32),
        np.zeros((rows, width), np.float32),
        np.zeros((rows, mixture), np.float32),
        np.zeros((rows, weights.head.types.bias.shape[0]), np.float32),
        np.zeros((rows, width), np.float32),
        np.zeros((rows, wide), np.float32),
        np.zeros((rows, gates), np.float32),
        np.zeros((rows, gates), np.float32),
        np.zeros((rows, width), np.float32),
        np.zeros((rows, columns), np.float32),
        np.zeros(rows, np.float32),
        np.zeros(rows, np.int64),
        np.zeros(max(weights.head.components, draft.head.components)),
    )


@native
def new_laws(slots, places, components, kinds):
    return Laws(
        np.zeros((slots, places, components)),
        np.zeros((slots, places, components)),
        np.zeros((slots, places, components)),
        np.zeros((slots, places, kinds)),
        np.zeros((slots, places)),
    )


@native
def widened(array, columns):
    """A copy with more columns in the last dimension [slots, L, D, C]."""
    slots, layers, width, old = array.shape
    wider = np.zeros((slots, layers, width, columns), np.float32)
    for s in range(slots):
        for layer in range(layers):
            for d in range(width):
                wider[s, layer, d, :old] = array[s, layer, d]
    return wider
