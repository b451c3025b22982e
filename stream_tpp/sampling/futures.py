"""Simulated futures: what sampling gives back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stream_tpp.kernels.law import Law


@dataclass
class Stats:
    """What sampling cost. Row counts add over rows that were still running."""

    target_passes: int = 0
    """Passes of the target over the whole batch."""
    row_passes: int = 0
    """The same, counted once for each row."""
    drafted: int = 0
    """Drafted events that were put to the target."""
    accepted: int = 0
    """Drafted events that stood."""
    events: int = 0
    """Events of the paths, the one that ends each (past its horizon) included: what autoregression would have drawn."""
    rejected: int = 0
    """Drafted events that were turned down. Those drafted after one were not judged."""

    @property
    def acceptance(self) -> float:
        """Share of the drafted events that stood (the paper's alpha); nan where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else float("nan")

    @property
    def chance(self) -> float:
        """That a drafted event stood where those before it did; nan where none was judged."""
        judged = self.accepted + self.rejected
        return self.accepted / judged if judged else float("nan")

    @property
    def events_per_target_pass(self) -> float:
        """Events that one target pass yields in one row."""
        return self.events / self.row_passes if self.row_passes else float("nan")

    def add(self, other: Stats) -> None:
        """Add the figures of another call."""
        self.target_passes += other.target_passes
        self.row_passes += other.row_passes
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.events += other.events
        self.rejected += other.rejected


@dataclass(frozen=True)
class Futures:
    """P futures of each of B histories, padded to the longest, N events.

    times float64 [B, P, N]: absolute seconds (inf past the end). leads float64 [B, P, N]: seconds from now, exact also
    where absolute times are too large to tell close events apart. types int64 [B, P, N] (-1 past the end). lengths int64
    [B, P]. complete bool [B, P]: False where `max_events` ended a path before its horizon. log_permitted float64
    [B, P, N] or None: with suppressed types, log of the chance that each event was of a permitted type.
    next: the target's own law [B] of each history's next event, given the quiet time so far.
    """

    times: Tensor
    leads: Tensor
    types: Tensor
    lengths: Tensor
    complete: Tensor
    log_permitted: Tensor | None
    next: Law
    stats: Stats


def gather_events(valid: Tensor, *columns: tuple[Tensor, float]) -> tuple[Tensor, list[Tensor]]:
    """Move each row's valid entries to the front: valid bool [..., W]; columns (values [..., W], filler for the rest).

    Returns lengths int64 [...] and the columns cut to the longest row.
    """
    lengths = valid.sum(-1)
    order = torch.argsort((~valid).to(torch.int8), dim=-1, stable=True)[..., : int(lengths.max())]
    kept = valid.gather(-1, order)
    moved = [torch.where(kept, values.gather(-1, order), filler) for values, filler in columns]
    return lengths, moved
