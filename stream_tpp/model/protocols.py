"""What the sampler asks of a target and of a draft.

B histories, P paths of each, gamma drafted events. A path's events follow those of its history.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.model.histories import Histories


class Cache(Protocol):
    """What a target remembers of each row's events."""

    def keep(self, added: Tensor) -> None:
        """Of the positions that the last `extend` appended, keep the first `added` (int64 [B, P]); roll the rest back."""

    def choose(self, paths: Tensor) -> None:
        """Go on with the paths of index `paths` (int64 [B, P']) alone."""


class Target(Protocol):
    """The model whose law the samples follow."""

    def prefill(self, histories: Histories, paths: int) -> tuple[Any, Tensor]:
        """Encode all of each history but its last event, once for all P paths: cache, and hidden states [B, P, D] there."""

    def extend(self, cache: Any, block: Block) -> tuple[Law, Tensor]:
        """Append events [B, P, n] to every row: the law of what follows each, and hidden states [B, P, n, D]."""


@dataclass(frozen=True)
class Rollout:
    """Events proposed by a draft, [B, P, gamma], and the law that each was drawn from."""

    block: Block
    law: Law
    state: Any


class Draft(Protocol):
    """A cheap model that proposes events. Its state after any accepted prefix can be had from `commit`."""

    def begin(self, histories: Histories, hidden: Tensor) -> Any:
        """State before the last event of each history; hidden [B, P, D] is the target's state there."""

    def rollout(
        self, state: Any, pending: Block, u: Tensor, scale: GapScale, y_elapsed: Tensor | None, permitted: Tensor | None
    ) -> Rollout:
        """Take in `pending` [B, P, 1], then draw gamma events with u [B, P, gamma, 3].

        y_elapsed [B, P] truncates the law of the first of them; `permitted` (bool [K]) restricts the types of all.
        """

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Any:
        """State before the next pending event: `accepted` (int64 [B, P]) drafted events stood.

        hidden [B, P, gamma + 1, D] are the target's states at the pending event and at each drafted one.
        """

    def choose(self, state: Any, paths: Tensor) -> Any:
        """The state of the paths of index `paths` (int64 [B, P']) alone."""
