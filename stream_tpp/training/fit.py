"""From a split log to a trained model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.binned import TimeBins
from stream_tpp.model.bins import Bins
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.encoder import Encoder
from stream_tpp.model.model import Model
from stream_tpp.training.baselines import log_normal_renewal_nll, poisson_nll
from stream_tpp.training.continuations import continued
from stream_tpp.training.data import Batch, Crops, Observed, Split, fit_gap_scale, mean_gap, standardised_gaps
from stream_tpp.training.distillation import acceptance, train_draft
from stream_tpp.training.likelihood import negative_log_likelihood, train_target
from stream_tpp.training.optimise import Schedule

_TARGET_SHARE = 0.6
_JUDGED_BATCHES = 32
_APART = 4  # under a time limit


@dataclass(frozen=True)
class Recipe:
    """How to train: `target` and `draft` as in the model's configuration (its types and time scale come from the data).

    window: events of history a crop holds, and so the longest history that the model should be shown. batch_size: crops.
    time_limit: seconds for target and draft together, or None. recompute: see `Encoder`. simulated:
    share of the draft's batches that the model continued itself.
    """

    target: TargetConfig
    draft: DraftConfig = field(default_factory=DraftConfig)
    window: int = 128
    batch_size: int = 32
    target_schedule: Schedule = field(default_factory=Schedule)
    draft_schedule: Schedule = field(default_factory=lambda: Schedule(epochs=15, patience=4))
    distill: bool = True
    time_limit: float | None = None
    seed: int = 0
    recompute: bool = False
    simulated: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """A trained model and what it is worth. NLLs in nats per event, gaps in seconds; acceptance on the test part."""

    model: Model
    train_nll: float
    test_nll: float
    acceptance: float
    seconds: float
    baselines: dict[str, float]


def fit(split: Split, recipe: Recipe) -> Fitted:
    """Train target, then draft. The same split, recipe and machine give the same weights, unless a time limit cuts in."""
    _require_gaps("training", split.train)
    _require_gaps("test", split.test)
    began = time.monotonic()
    scale = fit_gap_scale(split.train)
    types = len(split.types)
    target = replace(recipe.target, types=types, time_scale=mean_gap(split.train))
    bins: Bins | None = None
    if target.head == "binned":
        bins = Bins.fit(standardised_gaps(split.train, scale), target.bins, target.spacing)
        target = replace(target, bins=len(bins))
    config = ModelConfig(target, recipe.draft)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = Model.fresh(config, split.types, scale, recipe.window)
        if bins is not None:
            _cut(model, bins)
        for module in (*model.target.modules(), *model.draft.modules()):
            if isinstance(module, Encoder):
                module.recompute = recipe.recompute
        train, validation, test = (
            Crops(part, scale, types, recipe.window, recipe.batch_size) for part in (split.train, split.validation, split.test)
        )
        train_target(model.target, train, validation, _limited(recipe, recipe.target_schedule, _TARGET_SHARE), recipe.seed)
        train_draft(
            model.draft,
            model.target,
            train,
            validation,
            _limited(recipe, recipe.draft_schedule, 1 - _TARGET_SHARE),
            recipe.seed,
            recipe.distill,
            simulate=(lambda batch, seed: continued(batch, model, seed)) if recipe.simulated else None,
            simulated=recipe.simulated,
            apart=1 if recipe.time_limit is None else _APART,
        )
    return Fitted(
        model,
        negative_log_likelihood(model.target, _some(train), scale),
        negative_log_likelihood(model.target, test.judged(), scale),
        acceptance(model.draft, model.target, _some(test)),
        time.monotonic() - began,
        _baselines(split, scale),
    )


def _cut(model: Model, bins: Bins) -> None:
    for module in (*model.target.modules(), *model.draft.modules()):
        if isinstance(module, TimeBins):
            module.cut(bins)


def _require_gaps(part: str, sequences: Sequence[Observed]) -> None:
    if not any(len(observed.history) > max(observed.scored_from, 1) for observed in sequences):
        raise StreamTppError(
            f"The {part} part of the log has no two events of one entity, so no gap: give a longer log, check that --entity "
            "names the right column, or move --until."
        )


def _baselines(split: Split, scale: GapScale) -> dict[str, float]:
    types = len(split.types)
    return {
        "poisson": poisson_nll(split.train, split.test, types),
        "log_normal_renewal": log_normal_renewal_nll(split.train, split.test, types, scale.floor),
    }


def _limited(recipe: Recipe, schedule: Schedule, share: float) -> Schedule:
    return schedule if recipe.time_limit is None else replace(schedule, time_limit=share * recipe.time_limit)


def _some(crops: Crops) -> list[Batch]:
    """At most _JUDGED_BATCHES batches, of all lengths."""
    batches = list(crops.judged())
    return batches[:: -(-len(batches) // _JUDGED_BATCHES)]
