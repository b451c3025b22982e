"""The anchored draft: a recurrent cell that starts from the target's own hidden state at the last verified event.

It needs no history, no cache and no rollback: whatever was accepted, the target's state there says it all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stream_tpp.model.block import Block, Histories
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft, Taught, draw_along, pick_path, pick_place
from stream_tpp.model.encoder import STABLE_ROWS, EventEmbedding
from stream_tpp.model.heads import MixtureHead
from stream_tpp.model.law import GapScale
from stream_tpp.sampling.protocols import Rollout


class AnchoredDraft(NeuralDraft[Tensor]):
    """State: the target's hidden state [B, P, D] at the event before the pending one (zeros where there is none)."""

    def __init__(self, config: DraftConfig, target: TargetConfig) -> None:
        super().__init__()
        self.start = nn.Linear(target.d_model, config.d_model)
        self.event = EventEmbedding(target.types, config.d_model, target.cycles)
        self.cell = nn.GRUCell(config.d_model, config.d_model)
        self.head = MixtureHead(config.d_model, config.components, target.types)

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
        batch, paths = pending.types.shape[:2]
        wide = max(batch * paths, STABLE_ROWS)

        def widen(t: Tensor) -> Tensor:
            """[B, P, ...] as one line of at least so many rows; too few give other last bits (see the encoder's `extend`)."""
            t = t.flatten(0, 1)
            return torch.cat([t, t[-1:].expand(wide - len(t), *t.shape[1:])])[None]

        block, law, _ = draw_along(
            self._step,
            self.head.law,
            torch.tanh(self.start(widen(state))),
            pending.map(widen),
            widen(u),
            scale,
            None if y_elapsed is None else widen(y_elapsed),
            permitted,
        )
        gamma = u.shape[2]
        rows = torch.arange(batch * paths, device=u.device)
        law = law.reshape(wide, gamma).rows(rows).reshape(batch, paths, gamma)
        return Rollout(block.map(lambda t: t[0, : batch * paths].reshape(batch, paths, gamma)), law, state)

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Tensor:
        return pick_place(hidden, accepted)

    def choose(self, state: Tensor, paths: Tensor) -> Tensor:
        return pick_path(state, paths)

    def taught(self, block: Block, hidden: Tensor, steps: int) -> Taught:
        # Anchor a takes in event a, then a + 1, ..., starting from the target's state at a - 1.
        batch, size = block.types.shape
        steps = min(steps, size)
        anchors = size - steps + 1
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, : anchors - 1]], 1)
        state = torch.tanh(self.start(before)).flatten(0, 1)
        inputs = self.event(block)
        states = []
        for step in range(steps):
            state = self.cell(inputs[:, step : step + anchors].flatten(0, 1), state)
            states.append(state.unflatten(0, (batch, anchors)))
        law = self.head.law(self.head(self.refined(torch.stack(states, 2))))
        place = torch.arange(anchors, device=hidden.device)[:, None] + torch.arange(steps, device=hidden.device)
        return Taught(law, place)

    def refined(self, state: Tensor) -> Tensor:
        """What the head sees of the cell's state [..., D]."""
        return state

    def _step(self, event: Block, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(self.event(event).flatten(0, 1), state.flatten(0, 1)).unflatten(0, event.types.shape)
        return self.head(self.refined(state)), state
