"""Transformer Hawkes process: Zuo et al. 2020 (arXiv 2002.09291)."""

from torch import Tensor, nn

from stream_tpp.kernels.block import Block
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoder import Embedded, Encoder, EventEmbedding, FeedForwardLayer, seconds_since_bos
from stream_tpp.model.encodings import time_encoding


class THP(Encoder):
    """x = z(t) + embedding of the event, then softmax self-attention layers."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.time_scale = config.time_scale
        self.event = EventEmbedding(config.types, config.d_model, config.cycles)
        self.time = time_encoding(config.time_encoding, config.d_model)
        self.layers = nn.ModuleList(FeedForwardLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)

    def embed(self, block: Block, place: Tensor) -> Embedded:
        return Embedded(self.event(block) + self.time(seconds_since_bos(block, self.time_scale)), None)
