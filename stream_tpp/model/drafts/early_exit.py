"""The early-exit draft: the target's own first layers, with a norm and a head of their own."""

from __future__ import annotations

from torch import Tensor, nn

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.block import Block
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.drafts.transformer import CachedDraft
from stream_tpp.model.encoder import Embedded, Encoder
from stream_tpp.model.heads import build_head


class EarlyExitDraft(CachedDraft):
    """`layers` of the target's layers. They stay the target's: training the draft leaves them as they are."""

    def __init__(self, config: DraftConfig, target: TargetConfig, encoder: Encoder) -> None:
        super().__init__()
        if config.layers >= target.layers:
            raise StreamTppError(f"An early exit after {config.layers} of {target.layers} layers is none: take fewer.")
        self.norm = nn.LayerNorm(target.d_model)
        self.head = build_head(target, target.d_model, config.components)
        # In a tuple, so that the target's weights are no weights of the draft.
        self._exit = (_FirstLayers(encoder, config.layers, self.norm),)

    def encoder_of(self) -> Encoder:
        return self._exit[0]


class _FirstLayers(Encoder):
    def __init__(self, encoder: Encoder, layers: int, norm: nn.Module) -> None:
        super().__init__()
        self.null, self.own = encoder.null, encoder.own
        self.layers = nn.ModuleList(list(encoder.layers)[:layers])
        self.norm = norm
        self._encoder = (encoder,)

    def embed(self, block: Block, place: Tensor) -> Embedded:
        return self._encoder[0].embed(block, place)
