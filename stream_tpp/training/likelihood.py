"""The target by maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.model.target import Target
from stream_tpp.training.data import Batch, Crops
from stream_tpp.training.optimise import Schedule, optimise


@dataclass(frozen=True)
class LogLikelihood:
    """Sums over a number of events, in nats: of the gaps (density in y), of the types, of the quiet times at the ends."""

    gaps: Tensor
    types: Tensor
    quiet: Tensor
    events: Tensor

    @property
    def loss(self) -> Tensor:
        """Negative log likelihood per event: sum log g + log f + log (1 - G(quiet)), TPP-SD section 4.1."""
        return -(self.gaps + self.types + self.quiet) / self.events.clamp(min=1)


def log_likelihood(law: Law, batch: Batch) -> LogLikelihood:
    """What the laws [B, S] say of the events of a batch."""
    block = batch.histories.block
    judging = law.first(block.y.shape[1] - 1)
    y = block.y[:, 1:]
    # Only the first gap of a sequence can be unknown; its type is judged whatever the gap.
    log_types = torch.where(batch.gaps[..., None], judging.types_given_gap(y), law.first(1).types())
    types = block.types[:, 1:].clamp(max=log_types.shape[-1] - 1)
    quiet = batch.quiet > -torch.inf
    last = law.at(batch.histories.lengths - 1)
    survival = last.log_survival(torch.where(quiet, batch.quiet, 0.0))
    return LogLikelihood(
        torch.where(batch.gaps, judging.log_prob_gap(y), 0.0).sum(),
        torch.where(batch.types, log_types.gather(-1, types[..., None])[..., 0], 0.0).sum(),
        torch.where(quiet, survival, 0.0).sum(),
        batch.types.sum(),
    )


def train_target(target: Target, train: Crops, validation: Crops, schedule: Schedule, seed: int) -> float:
    """Maximum likelihood with early stopping; validation loss of the weights kept (nats an event, gaps in y)."""
    random = np.random.default_rng(seed)
    held_out = list(validation.judged())
    return optimise(
        target,
        epoch=lambda: train.epoch(random),
        loss=lambda batch: log_likelihood(target(batch.histories.block)[0], batch).loss,
        validate=lambda: _mean_loss(target, held_out),
        schedule=schedule,
        name="target",
    )


@torch.inference_mode()
def negative_log_likelihood(target: Target, batches: Iterable[Batch], scale: GapScale) -> float:
    """Nats per event with gaps in seconds, quiet times left out: comparable between models whatever their gap scale."""
    gaps = types = jacobian = events = 0.0
    for batch in batches:
        found = log_likelihood(target(batch.histories.block)[0], batch)
        gaps, types, events = gaps + float(found.gaps), types + float(found.types), events + float(found.events)
        # g(gap) = g(y) / (log_std gap)
        y = batch.histories.block.y[:, 1:][batch.gaps]
        jacobian += float((y * scale.log_std + scale.log_mean + math.log(scale.log_std)).sum())
    return (jacobian - gaps - types) / max(events, 1.0)


def _mean_loss(target: Target, batches: list[Batch]) -> float:
    found = [log_likelihood(target(batch.histories.block)[0], batch) for batch in batches]
    total = sum(float(one.gaps + one.types + one.quiet) for one in found)
    return -total / max(1, sum(int(one.events) for one in found))
