"""The draft's rollout: events drawn one after another, each from the law after the one before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law

S = TypeVar("S")

# Matrix products of fewer rows take another way through the CPU's library, and differ in the last bits.
STABLE_ROWS = 16


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


def stack(events: list[Block]) -> Block:
    """Single events [B, P] as a block [B, P, n]."""
    return Block(
        torch.stack([event.y for event in events], -1),
        torch.stack([event.types for event in events], -1),
        torch.stack([event.times for event in events], -1),
        torch.stack([event.origin for event in events], -1),
    )
