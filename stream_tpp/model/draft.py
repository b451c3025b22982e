"""What a draft is to training and to the sampler: `stream_tpp.model.protocols.Draft`, as a network.

A place of a sequence is the index of the event that the law there follows, so target and draft speak of the same place.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.model.histories import Histories
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


def pick_place(tensor: Tensor, place: Tensor) -> Tensor:
    """[B, P, n, D] at places int64 [B, P]: [B, P, D]."""
    index = place[..., None, None].expand(*place.shape, 1, tensor.shape[-1])
    return tensor.gather(2, index)[:, :, 0]


def pick_path(tensor: Tensor, paths: Tensor) -> Tensor:
    """[B, P, D] of the paths of index int64 [B, P']: [B, P', D]."""
    return tensor.gather(1, paths[..., None].expand(-1, -1, tensor.shape[-1]))
