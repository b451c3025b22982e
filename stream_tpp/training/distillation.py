"""The draft: distilled on the target's own predictive law, or trained by likelihood, along the histories of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from stream_tpp.kernels.law import Law
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.target import Target
from stream_tpp.training.data import Batch, Crops
from stream_tpp.training.optimise import Schedule, optimise
from stream_tpp.training.overlap import compare

_JUDGE_SEED = 20_26
_UNCOVERED, _HIDDEN = 2.0, 3.0


def train_draft(
    draft: NeuralDraft[Any],
    target: Target,
    train: Crops,
    validation: Crops,
    schedule: Schedule,
    seed: int,
    distill: bool = True,
    steps: int = 8,
    simulate: Callable[[Batch, int], Batch] | None = None,
    simulated: float = 0.0,
    apart: int = 1,
) -> float:
    """Make the draft cover the target's law, `steps` deep from its anchors; 1 - acceptance on the validation part.

    The anchors of a batch are every `apart`-th event, from a random first one on: neighbours teach much the same, so a time limit
    is better spent on more batches. Binned laws are large, N K numbers: there they are `steps` apart.

    Distilled, the loss is the cross-entropy under the target's law (types by their whole law, gaps by draws from it; exact for
    binned laws), plus the uncovered part of the law itself, plus the distance to the target's hidden states for a draft that
    foresees them: the first teaches fast from afar, the second is what the sampler pays for, the third says more than any
    number of draws.
    Otherwise the loss is the negative log likelihood of the events themselves. `simulate` makes of a batch, and a seed, one that
    the model continued itself: so it does with the share `simulated` of them, at random.
    """
    random, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    held_out = list(validation.judged())
    if target.config.head == "binned":
        apart = steps

    def epoch() -> list[Batch]:
        batches = train.epoch(random)
        if simulate is None:
            return batches
        return [simulate(b, int(random.integers(2**62))) if random.random() < simulated else b for b in batches]

    def pair_of(batch: Batch) -> _Pair:
        return _laws(draft, target, batch, steps, apart, first=int(random.integers(apart)) if apart > 1 else 0)

    def distillation(batch: Batch) -> Tensor:
        pair = pair_of(batch)
        cross_entropy, overlap = compare(pair.p, pair.q, 2, generator)
        return _mean(cross_entropy + _UNCOVERED * (1 - overlap) + _HIDDEN * pair.distance, pair.counts)

    def likelihood(batch: Batch) -> Tensor:
        pair = pair_of(batch)
        known = pair.place < batch.gaps.shape[1]
        following = pair.place.clamp(max=batch.gaps.shape[1] - 1)
        y, types = (t[:, 1:][:, following] for t in (batch.histories.block.y, batch.histories.block.types))
        counts = known & batch.gaps[:, following]
        return _mean(-pair.q.log_prob(y, torch.where(counts, types, 0)), counts)

    if not any(True for _ in draft.parameters()):
        return 1 - acceptance(draft, target, held_out, steps)
    target.requires_grad_(False)
    if distill:
        draft.adopt(target)
    best = optimise(
        draft,
        epoch=epoch,
        loss=distillation if distill else likelihood,
        validate=lambda: 1 - acceptance(draft, target, held_out, steps),
        schedule=schedule,
        name="draft",
    )
    target.requires_grad_(True)
    return best


@torch.no_grad()
def acceptance(draft: NeuralDraft[Any], target: Target, batches: Iterable[Batch], steps: int = 8, draws: int = 4) -> float:
    """Mean overlap of draft and target over the places of held-out histories, at depths 1 to `steps` after an anchor.

    For mixtures by Monte Carlo, with draws that are the same from call to call.
    """
    generator = torch.Generator().manual_seed(_JUDGE_SEED)
    covered, places = 0.0, 0
    apart = steps if target.config.head == "binned" else 1
    for batch in batches:
        pair = _laws(draft, target, batch, steps, apart)
        covered += float(compare(pair.p, pair.q, draws, generator).overlap[pair.counts].sum())
        places += int(pair.counts.sum())
    return covered / max(places, 1)


class _Pair(NamedTuple):
    """Target's and draft's laws at the same `place` [A, G], [B, A, G], and whether a place counts, bool [B, A, G].

    distance [B, A, G]: between the target's hidden states and what the draft takes them to be; 0 where it has no view.
    """

    p: Law
    q: Law
    counts: Tensor
    place: Tensor
    distance: Tensor


def _laws(draft: NeuralDraft[Any], target: Target, batch: Batch, steps: int, apart: int, first: int = 0) -> _Pair:
    """From anchors `apart`, the first of which is event `first`."""
    block, lengths = batch.histories.block, batch.histories.lengths
    with torch.no_grad():
        law, hidden = target(block)
    rows, size = block.y.shape
    anchors = slice(first % max(1, size - steps + 1), None, apart)
    q, place, foreseen = draft.taught(block, hidden, steps, anchors)
    index = torch.arange(rows)[:, None, None] * size + place
    p = law.reshape(rows * size).rows(index.reshape(-1)).reshape(*index.shape)
    counts = place < lengths[:, None, None]
    if foreseen is None:
        distance = torch.zeros(counts.shape)
    else:
        distance = smooth_l1_loss(foreseen, hidden[:, place], reduction="none").mean(-1)
    return _Pair(p, q, counts, place, distance)


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    return torch.where(counts, values, 0.0).sum() / counts.sum().clamp(min=1)
