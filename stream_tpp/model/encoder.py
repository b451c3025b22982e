"""A causal Transformer over [BOS, e_1, e_2, ...]: what THP, SAHP and AttNHP have in common.

An encoder says how an event becomes a vector, what a layer's queries, keys and values are and what becomes of the attended
values; the walk through the layers, whole (`forward`) or piece by piece on a cache (`prefill`, `extend`), is here, once.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stream_tpp.kernels.attention import causal_attention
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.rollout import STABLE_ROWS
from stream_tpp.model.cache import Cache
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encodings import phases

STABLE_POSITIONS = 4
FARTHEST = 1e12


class Embedded(NamedTuple):
    """Events as vectors: x [..., n, D] enters the first layer, `clock` [..., n, Dz] (AttNHP's z(t)) enters every layer."""

    x: Tensor
    clock: Tensor | None


class Layer(nn.Module):
    """One attention layer, cut where the cache comes in."""

    @abstractmethod
    def project(self, x: Tensor, clock: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each [..., n, H, Dh], of x [..., n, D]."""

    @abstractmethod
    def combine(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output [..., n, D] from its input and the attended values [..., n, D]."""


class Encoder(nn.Module):
    """Causal stack of layers. `null` and `own` are the attention's (see `stream_tpp.kernels.attention`).

    recompute: in training, keep only what enters each layer and compute the layer again on the way back (Chen et al. 2016, arXiv
    1604.06174): the same gradients in more time and less memory, for long windows and large batches.
    """

    null = False
    own = True
    recompute = False

    layers: nn.ModuleList
    norm: nn.Module

    @abstractmethod
    def embed(self, block: Block, place: Tensor) -> Embedded:
        """Events [..., n] at places int64 [..., n] of their sequences (BOS has place 0) as vectors."""

    def forward(self, block: Block) -> Tensor:
        """Hidden states [B, S, D] of whole sequences [B, S], padded on the right."""
        x, clock = self.embed(block, _places(block))
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(partial(self._through, layer), x, clock, use_reentrant=False)[0]
            else:
                x = self._through(layer, x, clock)[0]
        return self._normed(x)

    def prefill(self, block: Block, lengths: Tensor, paths: int) -> tuple[Cache, Tensor]:
        """Read the first `lengths` [B] events of each row once for all paths: cache, and hidden states [B, S, D]."""
        hidden, prefix = self._read(block)
        return Cache(prefix, lengths, paths), hidden

    def extend(self, cache: Cache, block: Block) -> Tensor:
        """Append events [B, P, n] to every path: hidden states [B, P, n, D].

        Few rows are given more positions, which the cache drops again: matrix products of fewer than 16 rows take another
        way through the CPU's library and differ in the last bits, so a path would depend on what shares its batch. (Blocks
        of under 4 positions, autoregression among them, are left as they are.)
        """
        batch, paths, new = block.types.shape
        wide = max(new, -(-STABLE_ROWS // (batch * paths))) if new >= STABLE_POSITIONS else new
        if wide > new:
            block = block.map(lambda t: torch.cat([t, t[..., -1:].expand(-1, -1, wide - new)], -1))
        place = cache.append(wide, self.own)
        x, clock = self.embed(block, place)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            attended = cache.attend(number, *layer.project(x, clock), null=self.null)
            x = layer.combine(x, attended.flatten(-2))
        return self._normed(x)[:, :, :new]

    def _read(self, block: Block) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        x, clock = self.embed(block, _places(block))
        prefix = []
        for layer in self.layers:
            x, keys, values = self._through(layer, x, clock)
            prefix.append((keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous()))
        return self._normed(x), prefix

    def _through(self, layer: nn.Module, x: Tensor, clock: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        assert isinstance(layer, Layer)
        queries, keys, values = layer.project(x, clock)
        attended = causal_attention(queries, keys, values, self.null, self.own)
        return layer.combine(x, attended.flatten(-2)), keys, values

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed


class EventEmbedding(nn.Module):
    """Type embedding (BOS has its own), plus the event's own log gap and cycle phases through a linear map.

    The gap is given as y, beside whatever temporal encoding the encoder has: z(t) lives on the scale of a window, so gaps
    of 1e-6 or of 1e6 of its unit vanish in it, in float32 for good, while y keeps every decade apart.
    """

    cycles: Tensor

    def __init__(self, types: int, width: int, cycles: tuple[float, ...]) -> None:
        super().__init__()
        self.kind = nn.Embedding(types + 1, width)
        self.features = nn.Linear(1 + 2 * len(cycles), width)
        self.register_buffer("cycles", torch.tensor(cycles, dtype=torch.float64), persistent=False)

    def forward(self, block: Block) -> Tensor:
        features = block.y[..., None].to(self.features.weight.dtype)
        if len(self.cycles):
            features = torch.cat([features, phases(block.times, self.cycles)], -1)
        embedded: Tensor = self.kind(block.types) + self.features(features)
        return embedded


class FeedForwardLayer(Layer):
    """Softmax attention and a feed-forward part, both behind layer norms and beside residuals (pre-norm).

    THP's own code normalises after each residual; twenty such layers don't train without warm-up, twenty pre-norm ones do.
    """

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        width = config.d_model
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, config.feedforward),
            nn.GELU(),
            nn.Linear(config.feedforward, width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def project(self, x: Tensor, clock: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return queries, keys, values

    def combine(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(self.out(attended))
        output: Tensor = x + self.dropout(self.feedforward(x))
        return output


def _places(block: Block) -> Tensor:
    return torch.arange(block.types.shape[-1], device=block.types.device).expand_as(block.types)


def seconds_since_bos(block: Block, time_scale: float) -> Tensor:
    """(t - t_BOS) / time_scale [..., n], subtracted in float64, then float32.

    At most 1e12: a draft may propose a time that is infinite, and although no such event stands, what the cache keeps of it until
    it is written over must be numbers.
    """
    return ((block.times - block.origin) / time_scale).clamp(max=FARTHEST).to(torch.float32)
