"""The anchored draft: a recurrent cell that starts from the target's own hidden state at the last verified event.

It needs no history, no cache and no rollback: whatever was accepted, the target's state there says it all. What it learns is
to foresee the target's next hidden states (as EAGLE does for text, Li et al. 2024, arXiv 2401.15077): its head begins as
the target's own, so that the two laws speak of the same mixture components.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.rollout import draw_in_line
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft, Taught, pick_path, pick_place
from stream_tpp.model.encoder import EventEmbedding
from stream_tpp.model.heads import build_head
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout
from stream_tpp.model.target import Target


class AnchoredDraft(NeuralDraft[Tensor]):
    """State: the target's hidden state [B, P, D] at the event before the pending one (zeros where there is none)."""

    def __init__(self, config: DraftConfig, target: TargetConfig) -> None:
        super().__init__()
        self.start = nn.Linear(target.d_model, config.d_model)
        self.event = EventEmbedding(target.types, config.d_model, target.cycles)
        self.cell = nn.GRUCell(config.d_model, config.d_model)
        self.outlook = nn.Sequential(
            nn.LayerNorm(config.d_model),
            nn.Linear(config.d_model, 2 * config.d_model),
            nn.GELU(),
            nn.Linear(2 * config.d_model, target.d_model),
        )
        self.skip = nn.Linear(config.d_model, target.d_model)
        self.head = build_head(target, target.d_model, target.components)

    def adopt(self, target: Target) -> None:
        self.head.load_state_dict(target.head.state_dict())

    def begin(self, histories: Histories, hidden: Tensor) -> Tensor:
        return hidden

    def rollout(
        self,
        state: Tensor,
        pending: Block,
        u: Tensor,
        scale: GapScale,
        y_elapsed: Tensor | None,
        permitted: Tensor | None,
    ) -> Rollout:
        block, law, _ = draw_in_line(
            self._step, self.head.law, (state,), pending, u, scale, y_elapsed, permitted, enter=self._enter
        )
        return Rollout(block, law, state)

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Tensor:
        return pick_place(hidden, accepted)

    def choose(self, state: Tensor, paths: Tensor) -> Tensor:
        return pick_path(state, paths)

    def taught(self, block: Block, hidden: Tensor, steps: int, anchors: slice = slice(None)) -> Taught:
        # Anchor a takes in event a, then a + 1, ..., starting from the target's state at a - 1.
        batch, size = block.types.shape
        steps = min(steps, size)
        first = torch.arange(size - steps + 1, device=hidden.device)[anchors]
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden], 1)[:, first]
        state = self._enter((before,))[0].flatten(0, 1)
        inputs = self.event(block)
        states = []
        for step in range(steps):
            state = self.cell(inputs[:, first + step].flatten(0, 1), state)
            states.append(state.unflatten(0, (batch, len(first))))
        foreseen = self.foreseen(torch.stack(states, 2))
        law = self.head.law(self.head(foreseen))
        place = first[:, None] + torch.arange(steps, device=hidden.device)
        return Taught(law, place, foreseen)

    def foreseen(self, state: Tensor) -> Tensor:
        """The target's hidden state [..., D] as the cell's state [..., d] foresees it."""
        foreseen: Tensor = self.skip(state) + self.outlook(state)
        return foreseen

    def _enter(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.tanh(self.start(state[0])),)

    def _step(self, event: Block, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        after = self.cell(self.event(event).flatten(0, 1), state[0].flatten(0, 1)).unflatten(0, event.types.shape)
        return self.head(self.foreseen(after)), (after,)
