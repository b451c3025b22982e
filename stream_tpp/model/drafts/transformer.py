"""The Transformer draft: a small causal Transformer without any encoding of position or time, on a cache of its own.

The order of events is in the causal mask, and the time between them in each event's own log gap.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.rollout import draw_along
from stream_tpp.model.cache import Cache
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft, Taught
from stream_tpp.model.encoder import Embedded, Encoder, EventEmbedding, FeedForwardLayer
from stream_tpp.model.heads import Head, build_head
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout


class Read(NamedTuple):
    """A cache, and how many of its suffix positions [B, P] stand: what was read before the pending event."""

    cache: Cache
    lengths: Tensor


class CachedDraft(NeuralDraft[Read]):
    """A draft that is an encoder and a head; its state is the encoder's cache."""

    head: Head

    @abstractmethod
    def encoder_of(self) -> Encoder:
        """The encoder that reads the events."""

    def begin(self, histories: Histories, hidden: Tensor) -> Read:
        cache, _ = self.encoder_of().prefill(histories.block, histories.lengths - 1, hidden.shape[1])
        return Read(cache, cache.suffix_lengths)

    def rollout(
        self,
        state: Read,
        pending: Block,
        u: Tensor,
        scale: GapScale,
        y_elapsed: Tensor | None,
        permitted: Tensor | None,
    ) -> Rollout:
        cache = state.cache
        cache.rollback(state.lengths)
        block, law, _ = draw_along(self._step, self.head.law, cache, pending, u, scale, y_elapsed, permitted)
        self._step(block.map(lambda t: t[..., -1]), cache)
        return Rollout(block, law, state)

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Read:
        state: Read = rollout.state
        return Read(state.cache, state.lengths + 1 + accepted)

    def choose(self, state: Read, paths: Tensor) -> Read:
        chosen = copy.copy(state.cache)
        chosen.choose(paths)
        return Read(chosen, state.lengths.gather(1, paths))

    def taught(self, block: Block, hidden: Tensor, steps: int, anchors: slice = slice(None)) -> Taught:
        # As for the LSTM: a place follows from the events before it, at whatever depth.
        law = self.head.law(self.head(self.encoder_of()(block)[:, :, None]))
        return Taught(law, torch.arange(block.y.shape[1], device=hidden.device)[:, None])

    def _step(self, event: Block, cache: Cache) -> tuple[Tensor, Cache]:
        hidden = self.encoder_of().extend(cache, event.map(lambda t: t[..., None]))
        return self.head(hidden[:, :, 0]), cache


class TransformerDraft(CachedDraft):
    """`layers` layers of `heads` heads over event embeddings alone."""

    def __init__(self, config: DraftConfig, target: TargetConfig) -> None:
        super().__init__()
        shape = TargetConfig(
            target.types,
            layers=config.layers,
            heads=config.heads,
            d_model=config.d_model,
            feedforward=2 * config.d_model,
            cycles=target.cycles,
        )
        self.encoder = _Unplaced(shape)
        self.head = build_head(target, config.d_model, config.components)

    def encoder_of(self) -> Encoder:
        return self.encoder


class _Unplaced(Encoder):
    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.event = EventEmbedding(config.types, config.d_model, config.cycles)
        self.layers = nn.ModuleList(FeedForwardLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)

    def embed(self, block: Block, place: Tensor) -> Embedded:
        return Embedded(self.event(block), None)
