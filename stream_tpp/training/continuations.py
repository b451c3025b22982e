"""Histories that the model continued itself: what a draft meets in sampling, where all but the beginning is simulated."""

from __future__ import annotations

import numpy as np
import torch

from stream_tpp.history import History
from stream_tpp.model.histories import pack
from stream_tpp.model.model import Model
from stream_tpp.training.data import Batch


def continued(batch: Batch, model: Model, seed: int) -> Batch:
    """The first halves of a batch's sequences, each continued by the model to its old length, one future each.

    Of the model's present weights: its futures have the target's law whatever the draft has learned so far.
    """
    block, lengths = batch.histories.block, batch.histories.lengths
    events = lengths - 1
    histories = [
        History(block.times[row, 1 : 1 + half].numpy(), block.types[row, 1 : 1 + half].numpy(), float(block.origin[row, 0]))
        for row, half in enumerate((events // 2).tolist())
    ]
    missing = (events - events // 2).tolist()
    futures = model.sample(histories, max_events=max(1, *missing), seed=seed)
    grown = [
        History(
            np.concatenate([history.times, futures.times[row, 0, : missing[row]].numpy()]),
            np.concatenate([history.types, futures.types[row, 0, : missing[row]].numpy()]),
            history.start,
        )
        for row, history in enumerate(histories)
    ]
    packed = pack(grown, model.scale, len(model.types), int(events.max()))
    judged = torch.arange(packed.block.y.shape[1] - 1) + 1 < packed.lengths[:, None]
    return Batch(packed, judged, judged, torch.full((len(grown),), -torch.inf, dtype=torch.float64))
