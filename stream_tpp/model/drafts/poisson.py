"""The Poisson draft: a constant rate and constant shares of the types, counted in the history. Nothing is learned."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.kernels.rollout import conditioned
from stream_tpp.model.binned import BinnedLaw, TimeBins
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.draft import NeuralDraft, Taught, pick_path, pick_place
from stream_tpp.model.histories import Histories
from stream_tpp.model.protocols import Rollout

# The log of an exponential time of rate 1, as a mixture of normals (maximum likelihood; they overlap by 0.997). A draft may
# have any law that is known, and as a log-normal mixture this one goes through the same kernels as all others.
_WEIGHTS = (0.0069, 0.0612, 0.2028, 0.3465, 0.2945, 0.0881)
_LOCS = (-4.667, -2.923, -1.588, -0.569, 0.243, 0.927)
_LOG_SCALES = (0.716, 0.287, -0.058, -0.359, -0.625, -0.862)


class Counted(NamedTuple):
    """What was counted: events of each type, float64 [..., K], and the seconds [...] from BOS to the last event."""

    counts: Tensor
    seconds: Tensor


class PoissonDraft(NeuralDraft[Counted]):
    """Rate n / T and type frequencies so far, with one event of the training data's mean gap and of any type beside."""

    def __init__(self, config: DraftConfig, target: TargetConfig, scale: GapScale) -> None:
        super().__init__()
        self.types = target.types
        self.mean_gap = target.time_scale
        self.scale = scale
        self.time = TimeBins(target.bins) if target.head == "binned" else None

    def begin(self, histories: Histories, hidden: Tensor) -> Counted:
        read = histories.lengths - 2
        row, last = torch.arange(len(read), device=read.device), read.clamp(min=0)
        along = self._along(histories.block)
        return Counted(*(_per_path(t[row, last], read >= 0, hidden.shape[1]) for t in along))

    def rollout(
        self,
        state: Counted,
        pending: Block,
        u: Tensor,
        scale: GapScale,
        y_elapsed: Tensor | None,
        permitted: Tensor | None,
    ) -> Rollout:
        gamma = u.shape[2]
        first = Counted(state.counts[:, :, None] + self._ones(pending), pending.times - pending.origin)
        if y_elapsed is not None:
            y_elapsed = torch.nn.functional.pad(y_elapsed[..., None], (0, gamma - 1), value=-torch.inf)
        law = conditioned(self._law(Counted(*(t.expand(-1, -1, gamma, *t.shape[3:]) for t in first))), y_elapsed, permitted)
        y, types = law.sample(u)
        times = pending.times + scale.to_gap(y).cumsum(-1)
        block = Block(y, types, times, pending.origin.expand_as(times))
        counts = torch.cat([first.counts, first.counts + self._ones(block).cumsum(2)], 2)
        return Rollout(block, law, Counted(counts, torch.cat([first.seconds, times - block.origin], 2)))

    def commit(self, rollout: Rollout, accepted: Tensor, hidden: Tensor) -> Counted:
        state: Counted = rollout.state
        return Counted(pick_place(state.counts, accepted), state.seconds.gather(2, accepted[..., None])[..., 0])

    def choose(self, state: Counted, paths: Tensor) -> Counted:
        return Counted(pick_path(state.counts, paths), state.seconds.gather(1, paths))

    def taught(self, block: Block, hidden: Tensor, steps: int, anchors: slice = slice(None)) -> Taught:
        counts, seconds = self._along(block)
        law = self._law(Counted(counts[:, :, None], seconds[:, :, None]))
        return Taught(law, torch.arange(block.y.shape[1], device=hidden.device)[:, None])

    def _along(self, block: Block) -> Counted:
        """Counts up to and with each event of [B, S]."""
        return Counted(self._ones(block).cumsum(1), block.times - block.origin)

    def _ones(self, block: Block) -> Tensor:
        """One-hot types [..., K]; BOS (type K) is no event."""
        return torch.nn.functional.one_hot(block.types, self.types + 1)[..., : self.types].to(torch.float64)

    def _law(self, counted: Counted) -> Law:
        counts = counted.counts + 1 / self.types
        log_events = counts.sum(-1).log()
        log_rate = log_events - (counted.seconds + self.mean_gap).log()
        log_types = counts.log() - log_events[..., None]
        return self._mixture(log_rate, log_types) if self.time is None else self._binned(self.time, log_rate, log_types)

    def _mixture(self, log_rate: Tensor, log_types: Tensor) -> MixtureLaw:
        """The exponential law of rate r in y = (log gap - log_mean) / log_std: shifted by -log r."""
        weights, locs, log_scales = (log_rate.new_tensor(t) for t in (_WEIGHTS, _LOCS, _LOG_SCALES))
        shape = (*log_rate.shape, len(_WEIGHTS))
        return MixtureLaw(
            torch.log(weights / weights.sum()).expand(shape),
            (locs - log_rate[..., None] - self.scale.log_mean) / self.scale.log_std,
            (log_scales - math.log(self.scale.log_std)).expand(shape),
            log_types,
        )

    def _binned(self, time: TimeBins, log_rate: Tensor, log_types: Tensor) -> BinnedLaw:
        """The exponential law's mass in each bin: exp(-r bottom) - exp(-r top)."""
        expected = torch.exp(log_rate[..., None] + (time.edges * self.scale.log_std + self.scale.log_mean))
        bottoms = torch.nn.functional.pad(expected, (1, 0))
        tops = torch.nn.functional.pad(expected, (0, 1), value=torch.inf)
        log_bins = torch.log(-torch.expm1(bottoms - tops)) - bottoms
        return BinnedLaw(time.bins, log_bins, log_types[..., None, :].expand(*log_bins.shape, -1))


def _per_path(tensor: Tensor, known: Tensor, paths: int) -> Tensor:
    """[B, ...] as [B, P, ...], 0 where nothing is known."""
    flat = torch.where(known.reshape(-1, *[1] * (tensor.dim() - 1)), tensor, 0.0)
    return flat[:, None].expand(-1, paths, *flat.shape[1:])
