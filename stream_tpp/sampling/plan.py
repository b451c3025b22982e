"""What to sample, and from when on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import Law
from stream_tpp.kernels.verification import MODES

L = TypeVar("L", bound=Law)

MOST_DRAFTED = 64
"""Drafted events all take memory and time, and hardly any stand so far out."""


@dataclass(frozen=True)
class Plan:
    """What to simulate.

    horizon (seconds from now, or None) and max_events (a path, or None) end a path, whichever comes first; at least one is
    set. draft_length: events drafted a round, fewer where max_events leaves less room; 0 is plain autoregression. `permitted`
    (bool [K]) suppresses the other types. first_path: path numbers start here, so that paths can be added to an earlier call.
    After reanchor_interval generated events without a draw from the target's own law, the target draws the next event itself:
    draft error can't build up.
    """

    paths: int
    horizon: float | None = None
    max_events: int | None = None
    draft_length: int = 4
    mode: str = "joint"
    permitted: Tensor | None = None
    first_path: int = 0
    reanchor_interval: int | None = None

    def __post_init__(self) -> None:
        if self.horizon is None and self.max_events is None:
            raise StreamTppError("Sampling needs an end: give a horizon in seconds, a number of events, or both.")
        if self.horizon is not None and not 0 < self.horizon < float("inf"):
            raise StreamTppError(f"The horizon is {self.horizon}: give a positive number of seconds.")
        if self.max_events is not None and self.max_events < 1:
            raise StreamTppError(f"max_events is {self.max_events}: give a number of 1 or more.")
        if self.paths < 1:
            raise StreamTppError(f"The number of paths is {self.paths}: give a number of 1 or more.")
        if not 0 <= self.draft_length <= MOST_DRAFTED:
            raise StreamTppError(f"The draft length is {self.draft_length}: give 0 (autoregression) to {MOST_DRAFTED}.")
        if self.mode not in MODES:
            raise StreamTppError(f"The mode is {self.mode!r}: choose one of {', '.join(MODES)}.")
        if self.permitted is not None and not bool(self.permitted.any()):
            raise StreamTppError("Every type is suppressed: leave at least one type permitted.")

    @property
    def reanchor_after(self) -> int:
        """Generated events after which the target takes over: max(2 gamma, 10) unless set."""
        return self.reanchor_interval if self.reanchor_interval is not None else max(2 * self.draft_length, 10)


def observed(history: History, now: float | None) -> History:
    """An entity never seen has been observed since now."""
    if len(history.times) or history.start is not None or now is None:
        return history
    return replace(history, start=now)


def elapsed_since(last: Tensor, now: Sequence[float | None]) -> Tensor:
    """Quiet seconds between the last events [B] and now, float64 [B]."""
    at = torch.tensor([float("nan") if t is None else t for t in now], dtype=torch.float64, device=last.device)
    at = torch.where(torch.isnan(at), last, at)
    early = (at < last).nonzero()
    if len(early):
        row = int(early[0, 0])
        raise StreamTppError(
            f"History {row} has an event at {float(last[row])}, after now = {float(at[row])}: give a later now, or leave "
            "out the events that have not happened yet."
        )
    return at - last


def given(p: L, y_elapsed: Tensor | None, permitted: Tensor | None) -> L:
    """The target's law [B, P, n], its first place truncated at the quiet time, its types restricted."""
    if y_elapsed is not None:
        later = p.shape[-1] - 1
        p = p.given_elapsed(torch.nn.functional.pad(y_elapsed[..., None], (0, later), value=-torch.inf))
    return p if permitted is None else p.restrict(permitted)
