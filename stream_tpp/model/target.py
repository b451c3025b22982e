"""The target: the Transformer temporal point process whose law the samples follow."""

import torch
from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import Law
from stream_tpp.model.cache import Cache
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoders import build_encoder
from stream_tpp.model.heads import build_head
from stream_tpp.model.histories import Histories
from stream_tpp.model.precision import SinglePrecision


class Target(SinglePrecision):
    """p(next gap and type | history), teacher-forced (`forward`) or piece by piece on a cache (`prefill`, `extend`).

    Both ways give the same law up to rounding.
    """

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config)
        self.head = build_head(config, config.d_model, config.components)

    def forward(self, block: Block) -> tuple[Law, Tensor]:
        """The law [B, S] of the event after each of [B, S] (padded on the right), and the hidden states [B, S, D]."""
        hidden: Tensor = self.encoder(block)
        return self.law(hidden), hidden

    def law(self, hidden: Tensor) -> Law:
        """The law of the next event [...] from hidden states [..., D]."""
        return self.head.law(self.head(hidden))

    def prefill(self, histories: Histories, paths: int) -> tuple[Cache, Tensor]:
        """Encode all of each history but its last event, once for all P paths.

        Returns the cache, and the hidden states [B, P, D] at the last event encoded: zeros where there is none.
        """
        lengths = histories.lengths - 1
        cache, hidden = self.encoder.prefill(histories.block, lengths, paths)
        last = hidden[torch.arange(len(lengths), device=lengths.device), (lengths - 1).clamp(min=0)]
        last = torch.where((lengths > 0)[:, None], last, 0.0)
        return cache, last[:, None].expand(-1, paths, -1)

    def extend(self, cache: Cache, block: Block) -> tuple[Law, Tensor]:
        """Append events [B, P, n] to every path: the law [B, P, n] of what follows each, and hidden states [B, P, n, D]."""
        hidden = self.encoder.extend(cache, block)
        return self.law(hidden), hidden
