"""A model's weights as arrays, laid out for the machine code."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stream_tpp.kernels.native.product import panels
from stream_tpp.kernels.native.vectors import LANES
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.model.encoder import EventEmbedding
from stream_tpp.model.encoders.attnhp import AttnHP
from stream_tpp.model.encoders.sahp import SAHP
from stream_tpp.model.encodings import ShiftedPosition, Sinusoidal
from stream_tpp.model.heads import MixtureHead
from stream_tpp.model.target import Target

Array = NDArray[Any]

SINUSOIDAL, TIME2VEC, SHIFTED = 0, 1, 2


class Linear(NamedTuple):
    """y = x @ weight + bias, as `stream_tpp.kernels.native.product` takes it."""

    weight: Array
    bias: Array


class Norm(NamedTuple):
    """Gain and shift of the layer norms of L layers, [L, D], D filled up to a multiple of 16."""

    gain: Array
    shift: Array


class Embedding(NamedTuple):
    """An event's vector: kind [K + 1, D] by type, features [1 + 2 C, D] of y and cycle phases, bias [D]; cycles [C] seconds."""

    kind: Array
    features: Array
    bias: Array
    cycles: Array


class Clock(NamedTuple):
    """A temporal encoding (which one), angular rates and shifts of its waves; seconds that count as 1."""

    encoding: int
    rates: Array
    shifts: Array
    scale: float


class Head(NamedTuple):
    """mixture: log weights, locations, log scales side by side, the two maps of each folded into one. types: one hidden layer."""

    mixture: Linear
    types_hidden: Linear
    types: Linear
    components: int
    kinds: int


class Encoder(NamedTuple):
    """Layers stacked along the first dimension. `clocked` (AttNHP): queries, keys and values see [z(t), x], there is no feed-
    forward part and no norm, and the arrays of those are empty. The scale of
    queries, and log2(e), is in their weights."""

    event: Embedding
    clock: Clock
    heads: int
    clocked: bool
    attention_norm: Norm
    qkv: Linear
    out: Linear
    feedforward_norm: Norm
    up: Linear
    down: Linear
    norm: Norm


class Anchored(NamedTuple):
    """The anchored draft."""

    start: Linear
    event: Embedding
    from_event: Linear
    from_state: Linear
    outlook_norm: Norm
    outlook_up: Linear
    outlook_down: Linear
    skip: Linear
    head: Head


class Weights(NamedTuple):
    """Target and draft."""

    encoder: Encoder
    head: Head
    draft: Anchored


def gather_weights(target: Target, draft: AnchoredDraft) -> Weights:
    """The weights of a target with a mixture head, and of its draft."""
    encoder = target.encoder
    layers: list[Any] = list(encoder.layers)
    clocked = isinstance(encoder, AttnHP)
    heads = target.config.heads
    assert isinstance(target.head, MixtureHead)
    assert isinstance(draft.head, MixtureHead)
    plain = [] if clocked else layers
    return Weights(
        Encoder(
            event=_embedding(encoder.event),  # type: ignore[arg-type]
            clock=_clock(encoder.position if isinstance(encoder, SAHP) else encoder.time, target.config.time_scale),
            heads=heads,
            clocked=clocked,
            attention_norm=_norms([layer.attention_norm for layer in plain]),
            qkv=_stacked([_scaled_queries(layer.qkv, heads) for layer in layers]),
            out=_stacked([_linear(layer.out) for layer in plain]),
            feedforward_norm=_norms([layer.feedforward[0] for layer in plain]),
            up=_stacked([_linear(layer.feedforward[1]) for layer in plain]),
            down=_stacked([_linear(layer.feedforward[3]) for layer in plain]),
            norm=_norms([] if clocked else [encoder.norm]),
        ),
        _head(target.head),
        _anchored(draft),
    )


def _anchored(draft: AnchoredDraft) -> Anchored:
    cell, outlook = draft.cell, draft.outlook
    return Anchored(
        start=_linear(draft.start),
        event=_embedding(draft.event),
        from_event=_panels(cell.weight_ih, cell.bias_ih),
        from_state=_panels(cell.weight_hh, cell.bias_hh),
        outlook_norm=_norms([outlook[0]]),
        outlook_up=_linear(outlook[1]),
        outlook_down=_linear(outlook[3]),
        skip=_linear(draft.skip),
        head=_head(draft.head),  # type: ignore[arg-type]
    )


def _head(head: MixtureHead) -> Head:
    slices = head.slices.weight.detach().double().chunk(3, 0)
    lines = (head.weights, head.locs, head.log_scales)
    folded = torch.cat([line.weight.detach().double() @ e for line, e in zip(lines, slices, strict=True)])
    bias = torch.cat([line.bias for line in lines])
    return Head(_panels(folded, bias), _linear(head.types[0]), _linear(head.types[2]), head.sizes[0], head.sizes[3])


def _embedding(event: EventEmbedding) -> Embedding:
    features = event.features
    return Embedding(
        _array(event.kind.weight), _array(features.weight.T), _array(features.bias), _array(event.cycles, np.float64)
    )


def _clock(encoding: Any, scale: float) -> Clock:
    rates = _array(encoding.rates)
    if isinstance(encoding, ShiftedPosition):
        return Clock(SHIFTED, rates, _array(encoding.shift.weight[:, 0]), scale)
    if isinstance(encoding, Sinusoidal):
        return Clock(SINUSOIDAL, rates, np.zeros_like(rates), scale)
    return Clock(TIME2VEC, rates, _array(encoding.shifts), scale)


def _scaled_queries(qkv: nn.Linear, heads: int) -> Linear:
    width = qkv.out_features // 3
    scale = torch.ones(3 * width)
    scale[:width] = (width // heads) ** -0.5 * math.log2(math.e)
    return _panels(qkv.weight.detach() * scale[:, None], qkv.bias.detach() * scale)


def _linear(layer: Any) -> Linear:
    return _panels(layer.weight, layer.bias)


def _panels(weight: Tensor, bias: Tensor) -> Linear:
    return Linear(*panels(_array(weight), _array(bias)))


def _stacked(layers: list[Linear]) -> Linear:
    if not layers:
        return Linear(np.zeros((0, 0, 0, 0), np.float32), np.zeros((0, 0), np.float32))
    return Linear(*(np.stack(part) for part in zip(*layers, strict=True)))


def _norms(norms: list[Any]) -> Norm:
    assert all(norm.eps == 1e-5 for norm in norms)
    return Norm(_filled([_array(norm.weight) for norm in norms]), _filled([_array(norm.bias) for norm in norms]))


def _filled(rows: list[Array]) -> Array:
    """Rows [L, D], D a multiple of 16."""
    width = max((-(-len(row) // LANES) * LANES for row in rows), default=0)
    filled = np.zeros((len(rows), width), np.float32)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


def _array(tensor: Tensor, kind: Any = np.float32) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy().astype(kind))
