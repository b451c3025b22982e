"""Histories as the tensors that a model is fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale

# A long history slides past a model in steps of so many events: in between, what was read of it stays as it is.
_STEP = 10


@dataclass(frozen=True)
class Histories:
    """Histories of B entities as sequences [BOS, e_1 .. e_n], padded at the end.

    block [B, S]; lengths int64 [B], BOS counted.
    """

    block: Block
    lengths: Tensor

    def to(self, device: torch.device) -> Histories:
        """The same on another device."""
        return Histories(self.block.map(lambda t: t.to(device)), self.lengths.to(device))

    @property
    def last(self) -> Block:
        """The last event of each history (BOS where there is none), [B, 1]."""
        index = (self.lengths - 1)[:, None]
        return self.block.map(lambda t: t.gather(1, index))


def pack(histories: Sequence[History], scale: GapScale, types: int, window: int, multiple: int = 1) -> Histories:
    """Histories as tensors: each one's last `window` events, `types` types, S a multiple of `multiple`.

    BOS stands at the start of observation. Where that is unknown, or older events were cut off, it stands at the time of
    the event before the first one kept (at the first event itself if there is none before). A history that knows its `first`
    is cut at a multiple of 10 (of a tenth of the window, for windows under 100): up to 9 events more are left out, and those
    kept are the same ones until 10 more have come. Raises StreamTppError where a history has an event of no type.
    """
    for row, history in enumerate(histories):
        _require_types(row, history, types)
    rows = [_sequence(history, window) for history in histories]
    longest = max(len(times) for times, _ in rows)
    width = -(-longest // multiple) * multiple
    times = np.zeros((len(rows), width))
    kinds = np.full((len(rows), width), types, dtype=np.int64)
    for row, (row_times, row_types) in enumerate(rows):
        times[row, : len(row_times)] = row_times
        times[row, len(row_times) :] = row_times[-1]
        kinds[row, 1 : len(row_times)] = row_types
    gaps = np.diff(times, axis=1, prepend=times[:, :1])
    y = scale.to_y(torch.from_numpy(gaps))
    y[:, 0] = 0.0
    clock = torch.from_numpy(times)
    block = Block(y, torch.from_numpy(kinds), clock, clock[:, :1].expand_as(clock))
    return Histories(block, torch.tensor([len(row_times) for row_times, _ in rows]))


def _require_types(row: int, history: History, types: int) -> None:
    if len(history) and not (history.types.min() >= 0 and history.types.max() < types):
        strange = next(int(kind) for kind in history.types if not 0 <= kind < types)
        raise StreamTppError(
            f"History {row} has an event of type number {strange}, and the model knows {types}, numbered from 0: leave out "
            "events of types that it was not trained on."
        )


def _sequence(history: History, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of BOS and the events kept, and the types of those events."""
    times, kinds = history.times, history.types
    cut = _cut(history, window)
    if cut:
        return times[cut - 1 :], kinds[cut:]
    start = history.start
    if start is None:
        start = times[0] if len(times) else 0.0
    return np.concatenate(([start], times)), kinds


def _cut(history: History, window: int) -> int:
    """How many of the oldest events are left out."""
    cut = max(0, len(history) - window)
    if history.first is None:
        return cut
    step = max(1, min(_STEP, window // 10, len(history) // 10))
    return cut + -(history.first + cut) % step
