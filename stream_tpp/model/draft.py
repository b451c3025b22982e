"""What a draft is to training and to the sampler: `stream_tpp.model.protocols.Draft`, as a network.

A place of a sequence is the index of the event that the law there follows, so target and draft speak of the same place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from stream_tpp.model.block import Block, Histories
from stream_tpp.model.encoder import STABLE_ROWS
from stream_tpp.model.law import GapScale, Law
from stream_tpp.model.precision import SinglePrecision
from stream_tpp.model.protocols import Rollout
from stream_tpp.model.target import Target

S = TypeVar("S")


class Taught(NamedTuple):
    """A draft's laws along given sequences: `law` [B, A, G], each at a `place` int64 [A, G] of its sequence.

    hidden [B, A, G, D]: what it takes the target's hidden states there to be, where it has a view of them.
    """

    law: Law
    place: Tensor
    hidden: Tensor | None = None


class NeuralDraft(SinglePrecision, Generic[S]):
    """A draft as a module. S is what it knows before the pending event of each row."""

    @abstractmethod
    def begin(self, histories: Histories, hidden: Tensor) -> S:
        """See `stream_tpp.model.protocols.Draft.begin`."""

    @abstractmethod
    def rollout(
        self, state: S, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        """See `stream_tpp.model.protocols.Draft.rollout`."""

    @abstractmethod
    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> S:
        """See `stream_tpp.model.protocols.Draft.commit`."""

    @abstractmethod
    def choose(self, state: S, paths: Tensor) -> S:
        """See `stream_tpp.model.protocols.Draft.choose`."""

    @abstractmethod
    def taught(self, block: Block, hidden: Tensor, steps: int, anchors: slice = slice(None)) -> Taught:
        """The laws it would draw from along the events [B, S] themselves, `steps` deep from every anchor at once.

        hidden [B, S, D] are the target's states; `anchors` leaves out some of the 0, 1 .. S - steps that a draft starts from,
        if its laws depend on where it started. Only for training: gradients flow to the draft.
        """

    def adopt(self, target: Target) -> None:
        """Before it is distilled: take over what the target has learned, where the draft has a place for it."""


def draw_along(
    step: Callable[[Block, S], tuple[Tensor, S]],
    to_law: Callable[[Tensor], Law],
    state: S,
    pending: Block,
    u: Tensor,
    scale: GapScale,
    y_elapsed: Tensor | None,
    permitted: Tensor | None,
) -> tuple[Block, Law, list[S]]:
    """Draw gamma events one after another, each from the law after the one before it.

    `step` takes in one event [B, P] and gives raw outputs of the next event's law, and a state. Returns the events
    [B, P, gamma], their laws, and the state after the pending event and after each drafted one but the last.
    """
    event = pending.map(lambda t: t[..., 0])
    drawn, raws, states = [], [], []
    for place in range(u.shape[2]):
        raw, state = step(event, state)
        law = conditioned(to_law(raw), y_elapsed if place == 0 else None, permitted)
        y, types = law.sample(u[:, :, place])
        event = Block(y, types, event.times + scale.to_gap(y), event.origin)
        drawn.append(event)
        raws.append(raw)
        states.append(state)
    laws = to_law(torch.stack(raws, 2))
    if y_elapsed is not None:
        later = y_elapsed.new_full((*y_elapsed.shape, u.shape[2] - 1), -torch.inf)
        y_elapsed = torch.cat([y_elapsed[..., None], later], -1)
    return stack(drawn), conditioned(laws, y_elapsed, permitted), states


def draw_in_line(
    step: Callable[[Block, tuple[Tensor, ...]], tuple[Tensor, tuple[Tensor, ...]]],
    to_law: Callable[[Tensor], Law],
    state: tuple[Tensor, ...],
    pending: Block,
    u: Tensor,
    scale: GapScale,
    y_elapsed: Tensor | None,
    permitted: Tensor | None,
    enter: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]] = lambda state: state,
) -> tuple[Block, Law, tuple[Tensor, ...]]:
    """`draw_along` for a state of tensors [B, P, D]; the states after each event taken in come back as [B, P, gamma, D].

    `enter` makes the first step's state of what was given. All rows are computed in one line of at least STABLE_ROWS: fewer
    would give other last bits (see the encoder's `extend`).
    """
    batch, paths, gamma = u.shape[:3]
    rows = batch * paths
    wide = max(rows, STABLE_ROWS)

    def widen(t: Tensor) -> Tensor:
        t = t.flatten(0, 1)
        return torch.cat([t, t[-1:].expand(wide - rows, *t.shape[1:])])[None]

    def narrow(t: Tensor) -> Tensor:
        return t[0, :rows].reshape(batch, paths, *t.shape[2:])

    elapsed = None if y_elapsed is None else widen(y_elapsed)
    line = enter(tuple(widen(t) for t in state))
    block, law, states = draw_along(step, to_law, line, pending.map(widen), widen(u), scale, elapsed, permitted)
    law = law.reshape(wide, gamma).rows(torch.arange(rows, device=u.device)).reshape(batch, paths, gamma)
    return block.map(narrow), law, tuple(narrow(torch.stack(parts, 2)) for parts in zip(*states, strict=True))


def conditioned(law: Law, y_elapsed: Tensor | None, permitted: Tensor | None) -> Law:
    """The law given the quiet time so far and the permitted types, where there are any such."""
    if y_elapsed is not None:
        law = law.given_elapsed(y_elapsed)
    return law if permitted is None else law.restrict(permitted)


def pick_place(tensor: Tensor, place: Tensor) -> Tensor:
    """[B, P, n, D] at places int64 [B, P]: [B, P, D]."""
    index = place[..., None, None].expand(*place.shape, 1, tensor.shape[-1])
    return tensor.gather(2, index)[:, :, 0]


def pick_path(tensor: Tensor, paths: Tensor) -> Tensor:
    """[B, P, D] of the paths of index int64 [B, P']: [B, P', D]."""
    return tensor.gather(1, paths[..., None].expand(-1, -1, tensor.shape[-1]))


def stack(events: list[Block]) -> Block:
    """Single events [B, P] as a block [B, P, n]."""
    return Block(
        torch.stack([event.y for event in events], -1),
        torch.stack([event.types for event in events], -1),
        torch.stack([event.times for event in events], -1),
        torch.stack([event.origin for event in events], -1),
    )
