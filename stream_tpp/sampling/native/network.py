# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Passes of target and draft over a few rows, on a cache of keys and values.

Arrays of n rows have room for more and for widths rounded up to 32; rows are [:n]. Twins of `stream_tpp.model`.
"""

import math

import numpy as np

from stream_tpp.kernels.native.attention import attend, end_of_slot
from stream_tpp.kernels.native.functions import add, gelu, layer_norm, sigmoid, tanh
from stream_tpp.kernels.native.mixture import log_softmax
from stream_tpp.kernels.native.native import ZERO, native
from stream_tpp.kernels.native.product import product
from stream_tpp.model.encoder import FARTHEST
from stream_tpp.model.encodings import LATEST
from stream_tpp.sampling.native.weights import SHIFTED, SINUSOIDAL

_LOG_SCALE_LOW, _LOG_SCALE_HIGH = np.float32(-5.0), np.float32(3.0)
_ONE = np.float32(1.0)


@native
def embed_event(event, y, kind, time, out):
    """out [D] = the vector of an event, as `stream_tpp.model.encoder.EventEmbedding` makes it."""
    width = event.bias.shape[0]
    y32 = np.float32(y)
    for d in range(width):
        out[d] = event.kind[kind, d] + (event.bias[d] + y32 * event.features[0, d])
    cycles = event.cycles.shape[0]
    for c in range(cycles):
        angle = np.float32((min(time, LATEST) % event.cycles[c]) * (2 * math.pi / event.cycles[c]))
        sine, cosine = np.sin(angle), np.cos(angle)
        for d in range(width):
            out[d] += sine * event.features[1 + c, d] + cosine * event.features[1 + cycles + c, d]


@native
def encode_time(clock, elapsed, place, out, start):
    """out[start:] = the temporal encoding of an event `elapsed` seconds after BOS, at a place of its sequence."""
    time = np.float32(min(elapsed / clock.scale, FARTHEST))
    count = clock.rates.shape[0]
    if clock.encoding == SINUSOIDAL or clock.encoding == SHIFTED:
        moved = np.float32(place) if clock.encoding == SHIFTED else time
        for i in range(count):
            angle = moved * clock.rates[i] + time * clock.shifts[i]
            out[start + i] = np.sin(angle)
            out[start + count + i] = np.cos(angle)
    else:
        out[start] = time * clock.rates[0] + clock.shifts[0]
        for i in range(1, count):
            out[start + i] = np.sin(time * clock.rates[i] + clock.shifts[i])


@native
def embed(encoder, y, kind, time, origin, place, x, clock):
    """What enters the encoder for one event: x [D], and clock [D] where the layers are clocked."""
    embed_event(encoder.event, y, kind, time, x)
    encode_time(encoder.clock, time - origin, place, clock, 0)
    if not encoder.clocked:
        for d in range(encoder.event.bias.shape[0]):
            x[d] += clock[d]


@native
def encode(encoder, rows, slot, column, prefix_keys, prefix_values, prefix_length, keys, values, work):
    """Read the events work.x[:rows] (and work.clock) into the cache; their hidden states are left in work.hidden.

    Row r belongs at `column[r]` of `slot[r]`: keys and values [slots, L, D, C] get it there. It sees the first `prefix_length`
    columns of prefix_keys and prefix_values [L, D, S], and its slot's columns before its own, and its own but for AttNHP. Rows
    of one slot stand together, in order.
    """
    x, width, seen = work.x, encoder.event.bias.shape[0], work.seen
    for r in range(rows):
        seen[r] = column[r] if encoder.clocked else column[r] + 1
    for layer in range(encoder.qkv.weight.shape[0]):
        if encoder.clocked:
            for r in range(rows):
                for d in range(width):
                    work.wide[r, d] = work.clock[r, d]
                    work.wide[r, width + d] = x[r, d]
            product(work.wide, rows, encoder.qkv.weight[layer], encoder.qkv.bias[layer], work.qkv)
        else:
            norm = encoder.attention_norm
            layer_norm(x, rows, width, norm.gain, norm.shift, layer, work.narrow)
            product(work.narrow, rows, encoder.qkv.weight[layer], encoder.qkv.bias[layer], work.qkv)
        _remember(work.qkv, rows, slot, column, width, layer, keys, values)
        attend(
            work.qkv,
            rows,
            encoder.heads,
            width,
            slot,
            seen,
            prefix_keys[layer],
            prefix_values[layer],
            prefix_length,
            keys[:, layer],
            values[:, layer],
            encoder.clocked,
            work.weights,
            work.factors,
            work.attended,
        )
        if encoder.clocked:
            for r in range(rows):
                for d in range(width):
                    x[r, d] += tanh(work.attended[r, d])
        else:
            product(work.attended, rows, encoder.out.weight[layer], encoder.out.bias[layer], work.narrow)
            add(x, rows, width, work.narrow)
            norm = encoder.feedforward_norm
            layer_norm(x, rows, width, norm.gain, norm.shift, layer, work.narrow)
            product(work.narrow, rows, encoder.up.weight[layer], encoder.up.bias[layer], work.wide)
            gelu(work.wide, rows, encoder.up.bias.shape[1])
            product(work.wide, rows, encoder.down.weight[layer], encoder.down.bias[layer], work.narrow)
            add(x, rows, width, work.narrow)
    if encoder.clocked:
        for r in range(rows):
            for d in range(width):
                work.hidden[r, d] = x[r, d]
    else:
        layer_norm(x, rows, width, encoder.norm.gain, encoder.norm.shift, 0, work.hidden)


@native
def _remember(qkv, rows, slot, column, width, layer, keys, values):
    """The keys and values in qkv [:rows, width:] go to column[r] of slot[r]; what lies side by side is written in turn."""
    first = ZERO
    while first < rows:
        end = end_of_slot(slot, first, rows)
        own_keys, own_values = keys[slot[first], layer], values[slot[first], layer]
        for d in range(width):
            for r in range(first, end):
                own_keys[d, column[r]] = qkv[r, width + d]
        for d in range(width):
            for r in range(first, end):
                own_values[d, column[r]] = qkv[r, 2 * width + d]
        first = end


@native
def read_laws(head, hidden, rows, work):
    """The raw outputs of the head for hidden [:rows, D]: work.mixture [rows, 3 M] and work.types [rows, K]."""
    product(hidden, rows, head.mixture.weight, head.mixture.bias, work.mixture)
    product(hidden, rows, head.types_hidden.weight, head.types_hidden.bias, work.narrow)
    gelu(work.narrow, rows, head.types_hidden.bias.shape[0])
    product(work.narrow, rows, head.types.weight, head.types.bias, work.types)


@native
def set_law(laws, s, i, mixture, types, permitted):
    """The law at (s, i) of `laws` from raw outputs [3 M] and [K], restricted to the permitted types."""
    components, kinds = laws.locs.shape[2], laws.log_types.shape[2]
    log_softmax(mixture[:components], laws.log_weights[s, i])
    for m in range(components):
        laws.locs[s, i, m] = mixture[components + m]
        log_scale = mixture[2 * components + m]
        log_scale = _LOG_SCALE_LOW if log_scale < _LOG_SCALE_LOW else log_scale
        laws.log_scales[s, i, m] = _LOG_SCALE_HIGH if log_scale > _LOG_SCALE_HIGH else log_scale
    log_softmax(types[:kinds], laws.log_types[s, i])
    laws.log_mass[s, i] = 0.0
    if len(permitted):
        restrict(laws.log_types[s, i], permitted, laws.log_mass[s, i : i + 1])


@native
def copy_law(laws, s, i, others, at, place):
    """The law at (at, place) of `others` becomes that at (s, i) of `laws`."""
    others.log_weights[at, place], others.locs[at, place] = laws.log_weights[s, i], laws.locs[s, i]
    others.log_scales[at, place], others.log_types[at, place] = laws.log_scales[s, i], laws.log_types[s, i]
    others.log_mass[at, place] = laws.log_mass[s, i]


@native
def restrict(log_types, permitted, log_mass):
    """Suppress the other types and scale up the permitted ones; log_mass[0] = log probability of those before."""
    top = -np.inf
    for k in range(len(permitted)):
        if permitted[k] and log_types[k] > top:
            top = log_types[k]
    total = 0.0
    for k in range(len(permitted)):
        if permitted[k]:
            total += math.exp(log_types[k] - top)
    log_mass[0] = top + math.log(total)
    for k in range(len(permitted)):
        log_types[k] = log_types[k] - log_mass[0] if permitted[k] else -np.inf


@native
def enter_draft(draft, anchors, rows, state):
    """state[:rows] = where the cell starts from the target's hidden states `anchors`."""
    product(anchors, rows, draft.start.weight, draft.start.bias, state)
    for r in range(rows):
        for d in range(draft.start.bias.shape[0]):
            state[r, d] = tanh(state[r, d])


@native
def step_draft(draft, events, rows, state, work):
    """The cell takes in event vectors [:rows]; the raw outputs of the next law are left in work.mixture and work.types."""
    width = draft.event.bias.shape[0]
    product(events, rows, draft.from_event.weight, draft.from_event.bias, work.gates)
    product(state, rows, draft.from_state.weight, draft.from_state.bias, work.qkv)
    for r in range(rows):
        given, kept, h = work.gates[r], work.qkv[r], state[r]
        for d in range(width):
            reset = sigmoid(given[d] + kept[d])
            update = sigmoid(given[width + d] + kept[width + d])
            new = tanh(given[2 * width + d] + reset * kept[2 * width + d])
            h[d] = (_ONE - update) * new + update * h[d]
    norm = draft.outlook_norm
    layer_norm(state, rows, width, norm.gain, norm.shift, 0, work.narrow)
    product(work.narrow, rows, draft.outlook_up.weight, draft.outlook_up.bias, work.wide)
    gelu(work.wide, rows, draft.outlook_up.bias.shape[0])
    product(work.wide, rows, draft.outlook_down.weight, draft.outlook_down.bias, work.narrow)
    product(state, rows, draft.skip.weight, draft.skip.bias, work.hidden)
    add(work.hidden, rows, draft.skip.bias.shape[0], work.narrow)
    read_laws(draft.head, work.hidden, rows, work)
