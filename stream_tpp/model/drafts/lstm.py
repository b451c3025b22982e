"""The LSTM draft: a recurrent network of its own, which has read the whole history itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.rollout import draw_in_line
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft, Taught, pick_path, pick_place
from stream_tpp.model.encoder import EventEmbedding
from stream_tpp.model.heads import build_head
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout


class Memory(NamedTuple):
    """Output h and cell c of the LSTM, [B, P, D] each: what it knows before the pending event.

    In a rollout [B, P, gamma + 1, D]: after the pending event and after each drafted one.
    """

    h: Tensor
    c: Tensor


class LSTMDraft(NeuralDraft[Memory]):
    """Its state needs no target; a rollback picks the state after the last event that stood."""

    def __init__(self, config: DraftConfig, target: TargetConfig) -> None:
        super().__init__()
        self.event = EventEmbedding(target.types, config.d_model, target.cycles)
        self.lstm = nn.LSTM(config.d_model, config.d_model, batch_first=True)
        self.head = build_head(target, config.d_model, config.components)

    def begin(self, histories: Histories, hidden: Tensor) -> Memory:
        read = histories.lengths - 1
        # Packing refuses empty rows: they read one event, and forget it.
        packed = pack_padded_sequence(self.event(histories.block), read.clamp(min=1).cpu(), True, enforce_sorted=False)
        _, (h, c) = self.lstm(packed)
        paths = hidden.shape[1]
        known = (read > 0)[:, None]
        return Memory(*(torch.where(known, t[0], 0.0)[:, None].expand(-1, paths, -1) for t in (h, c)))

    def rollout(
        self,
        state: Memory,
        pending: Block,
        u: Tensor,
        scale: GapScale,
        y_elapsed: Tensor | None,
        permitted: Tensor | None,
    ) -> Rollout:
        block, law, states = draw_in_line(self._step, self.head.law, state, pending, u, scale, y_elapsed, permitted)
        # The state after the last drafted event is needed where all of them stand.
        _, last = self._step(block.map(lambda t: t[..., -1]), tuple(t[:, :, -1] for t in states))
        return Rollout(block, law, Memory(*(torch.cat([t, end[:, :, None]], 2) for t, end in zip(states, last, strict=True))))

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Memory:
        return Memory(*(pick_place(t, accepted) for t in rollout.state))

    def choose(self, state: Memory, paths: Tensor) -> Memory:
        return Memory(*(pick_path(t, paths) for t in state))

    def taught(self, block: Block, hidden: Tensor, steps: int, anchors: slice = slice(None)) -> Taught:
        # Every place follows from all events before it, at whatever depth: once along the sequence says it all.
        outputs, _ = self.lstm(self.event(block))
        place = torch.arange(block.y.shape[1], device=hidden.device)[:, None]
        return Taught(self.head.law(self.head(outputs[:, :, None])), place)

    def _step(self, event: Block, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        flat = self.event(event).flatten(0, 1)[:, None]
        _, (h, c) = self.lstm(flat, tuple(t.flatten(0, 1)[None].contiguous() for t in state))
        after = tuple(t[0].unflatten(0, event.types.shape) for t in (h, c))
        return self.head(after[0]), after
