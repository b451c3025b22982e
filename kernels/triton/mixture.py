# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Mixtures of normals: `stream_tpp.kernels.mixture` as Triton kernels.

Inside a kernel the components lie along the last dimension of a block: [BLOCK] for one place, [PLACES, BLOCK] for many.
Those past the last one have log weight -inf, location 0 and log scale 0.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stream_tpp.kernels.triton.launch import Launch
from stream_tpp.kernels.triton.normal import log_ndtr, log_ndtri, ndtri

_HALF_LOG_2PI = tl.constexpr(0.9189385332046727)
_BELOW_ONE = tl.constexpr(1.0 - 2.0**-52)
_NOTHING = tl.constexpr(float("-inf"))
_NUMBERS = 256  # in the block of a program: 2 for each thread of its 4 warps


def log_density(y: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """See `stream_tpp.kernels.mixture.log_density`."""
    return _run(log_density_kernel, y, None, log_weights, locs, log_scales)


def log_survival(y: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """See `stream_tpp.kernels.mixture.log_survival`."""
    return _run(log_survival_kernel, y, None, log_weights, locs, log_scales)


def sample(u: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """See `stream_tpp.kernels.mixture.sample`."""
    return _run(sample_kernel, None, u, log_weights, locs, log_scales)


def sample_above(y_low: Tensor, u: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """See `stream_tpp.kernels.mixture.sample_above`."""
    return _run(sample_above_kernel, y_low, u, log_weights, locs, log_scales)


def prepared(kernel: Any, y: Tensor | None, u: Tensor | None, *components: Tensor) -> tuple[Launch, Tensor]:
    """The launch of one of the kernels below, and the tensor [...] that it fills."""
    log_weights = components[0]
    shape = torch.broadcast_shapes(
        log_weights.shape[:-1], *(() if y is None else (y.shape,)), *(() if u is None else (u.shape[:-1],))
    )
    out = torch.empty(shape, dtype=torch.float64, device=log_weights.device)
    block = triton.next_power_of_2(log_weights.shape[-1])
    places = max(1, _NUMBERS // block)

    def rows(t: Tensor) -> Tensor:
        return t.expand(*shape, t.shape[-1]).contiguous()

    arguments = {
        "y": None if y is None else y.expand(shape).contiguous(),
        "u": None if u is None else rows(u),
        **{name: rows(t) for name, t in zip(("log_weights", "locs", "log_scales"), components, strict=True)},
        "out": out,
        "places": out.numel(),
        "COMPONENTS": log_weights.shape[-1],
        "BLOCK": block,
        "PLACES": places,
    }
    return Launch(kernel, triton.cdiv(out.numel(), places), arguments, warps=4), out


def _run(kernel: Any, y: Tensor | None, u: Tensor | None, *components: Tensor) -> Tensor:
    launch, out = prepared(kernel, y, u, *components)
    launch.run()
    return out


@triton.jit
def density_of(y, log_weights, locs, log_scales):
    """Log density; y is one number, or has a last dimension of 1."""
    z = (y - locs) * tl.exp(-log_scales)
    return log_sum_exp(log_weights - log_scales - 0.5 * z * z) - _HALF_LOG_2PI


@triton.jit
def survival_of(y, log_weights, locs, log_scales):
    """Log of the chance of a value above y; y is one number, or has a last dimension of 1."""
    z = (y - locs) * tl.exp(-log_scales)
    return log_sum_exp(log_weights + log_ndtr(-z))


@triton.jit
def drawn(u_component, u_within, log_weights, locs, log_scales):
    """A draw: the component from one uniform number, the value in it from the other, one of each for a place."""
    component = categorical(u_component, log_weights)
    return pick(locs, component) + tl.exp(pick(log_scales, component)) * ndtri(u_within)


@triton.jit
def drawn_above(low, u_component, u_within, log_weights, locs, log_scales):
    """A draw given that it is above `low`, one number for a place, which may be -inf."""
    z_low = (tl.expand_dims(low, -1) - locs) * tl.exp(-log_scales)
    log_tails = log_ndtr(-z_low)
    log_masses = log_weights + log_tails
    component = categorical(u_component, log_masses - tl.expand_dims(log_sum_exp(log_masses), -1))
    z = -log_ndtri(pick(log_tails, component) + tl.log(u_within))
    y = pick(locs, component) + tl.exp(pick(log_scales, component)) * z
    return tl.where(y < low, low, y)


@triton.jit
def categorical(u, log_probabilities):
    """Index drawn by inversion. One of probability zero is never drawn, in whatever order the parallel sum rounds."""
    p = tl.exp(log_probabilities)
    cumulative = tl.cumsum(p, -1)
    target = tl.expand_dims(u * (tl.max(cumulative, -1) * _BELOW_ONE), -1)
    index = _indices(p)
    first = tl.min(tl.where((p > 0.0) & (cumulative > target), index, p.shape[-1]), -1)
    last = tl.max(tl.where(p > 0.0, index, 0), -1)
    return tl.minimum(first, last)


@triton.jit
def pick(values, index):
    """The value at an index of the last dimension."""
    return tl.sum(tl.where(_indices(values) == tl.expand_dims(index, -1), values, 0.0), -1)


@triton.jit
def log_sum_exp(values):
    """Over the last dimension; -inf where there is nothing but -inf."""
    top = tl.max(values, -1)
    top = tl.where(top == _NOTHING, 0.0, top)
    return top + tl.log(tl.sum(tl.exp(values - tl.expand_dims(top, -1)), -1))


@triton.jit
def _indices(block):
    """0, 1, ... along the last dimension of a block."""
    index = tl.arange(0, block.shape[-1])
    return index if len(block.shape) == 1 else tl.expand_dims(index, 0)


@triton.jit
def load_components(log_weights, locs, log_scales, place, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr):
    """The components of a place (int64), or of many where `place` has a last dimension of 1."""
    component = tl.arange(0, BLOCK)
    at, there = place * COMPONENTS + component, component < COMPONENTS
    return (
        tl.load(log_weights + at, there, _NOTHING),
        tl.load(locs + at, there, 0.0),
        tl.load(log_scales + at, there, 0.0),
    )


@triton.jit
def _place(places, PLACES: tl.constexpr):
    """The places of this program. Where there are too few, the last one is done again: it gets the same value."""
    return tl.minimum(tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES), places - 1)


@triton.jit(do_not_specialize=["places"])
def log_density_kernel(
    y, u, log_weights, locs, log_scales, out, places, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr
):
    place = _place(places, PLACES)
    weights, means, scales = load_components(log_weights, locs, log_scales, tl.expand_dims(place, -1), COMPONENTS, BLOCK)
    tl.store(out + place, density_of(tl.expand_dims(tl.load(y + place), -1), weights, means, scales))


@triton.jit(do_not_specialize=["places"])
def log_survival_kernel(
    y, u, log_weights, locs, log_scales, out, places, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr
):
    place = _place(places, PLACES)
    weights, means, scales = load_components(log_weights, locs, log_scales, tl.expand_dims(place, -1), COMPONENTS, BLOCK)
    tl.store(out + place, survival_of(tl.expand_dims(tl.load(y + place), -1), weights, means, scales))


@triton.jit(do_not_specialize=["places"])
def sample_kernel(
    y, u, log_weights, locs, log_scales, out, places, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr
):
    place = _place(places, PLACES)
    weights, means, scales = load_components(log_weights, locs, log_scales, tl.expand_dims(place, -1), COMPONENTS, BLOCK)
    tl.store(out + place, drawn(tl.load(u + 2 * place), tl.load(u + 2 * place + 1), weights, means, scales))


@triton.jit(do_not_specialize=["places"])
def sample_above_kernel(
    y, u, log_weights, locs, log_scales, out, places, COMPONENTS: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr
):
    place = _place(places, PLACES)
    weights, means, scales = load_components(log_weights, locs, log_scales, tl.expand_dims(place, -1), COMPONENTS, BLOCK)
    tl.store(
        out + place, drawn_above(tl.load(y + place), tl.load(u + 2 * place), tl.load(u + 2 * place + 1), weights, means, scales)
    )
