"""Attentive neural Hawkes process: Yang et al. 2022 (arXiv 2201.00044)."""

import torch
from torch import Tensor, nn

from stream_tpp.kernels.block import Block
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoder import Embedded, Encoder, EventEmbedding, Layer, seconds_since_bos
from stream_tpp.model.encodings import time_encoding


class AttnHP(Encoder):
    """Every layer sees time anew: queries, keys and values are linear in [1, z(t), h].

    An event attends to strictly earlier events, under a denominator 1 + sum, so that a faint past stays faint.
    """

    null = True
    own = False

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.time_scale = config.time_scale
        self.event = EventEmbedding(config.types, config.d_model, config.cycles)
        self.time = time_encoding(config.time_encoding, config.d_model)
        self.layers = nn.ModuleList(_ClockedLayer(config) for _ in range(config.layers))
        self.norm = nn.Identity()

    def embed(self, block: Block, place: Tensor) -> Embedded:
        return Embedded(self.event(block), self.time(seconds_since_bos(block, self.time_scale)))


class _ClockedLayer(Layer):
    """h + tanh(attended values), heads side by side."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.heads = config.heads
        # The bias of the linear map is the 1 of [1, z(t), h].
        self.qkv = nn.Linear(2 * config.d_model, 3 * config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def project(self, x: Tensor, clock: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        assert clock is not None
        queries, keys, values = self.qkv(torch.cat([clock, x], -1)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return queries, keys, values

    def combine(self, x: Tensor, attended: Tensor) -> Tensor:
        output: Tensor = x + self.dropout(torch.tanh(attended))
        return output
