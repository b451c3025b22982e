"""Self-attentive Hawkes process: Zhang et al. 2020 (arXiv 1907.07561)."""

from torch import Tensor, nn

from stream_tpp.kernels.block import Block
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoder import Embedded, Encoder, EventEmbedding, FeedForwardLayer, seconds_since_bos
from stream_tpp.model.encodings import ShiftedPosition


class SAHP(Encoder):
    """x = positional encoding shifted by time + embedding of the event, then softmax self-attention layers."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.time_scale = config.time_scale
        self.event = EventEmbedding(config.types, config.d_model, config.cycles)
        self.position = ShiftedPosition(config.d_model)
        self.layers = nn.ModuleList(FeedForwardLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)

    def embed(self, block: Block, place: Tensor) -> Embedded:
        return Embedded(self.event(block) + self.position(seconds_since_bos(block, self.time_scale), place), None)
