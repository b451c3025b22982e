"""One call from a split log to a model that is worth more than its baselines."""

import numpy as np
import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.training.data import Split, split_log
from stream_tpp.training.fit import Fitted, Recipe, fit
from stream_tpp.training.optimise import Schedule

RECIPE = Recipe(
    TargetConfig(1, layers=1, heads=2, d_model=16, feedforward=16, components=3, dropout=0.1),
    DraftConfig(d_model=16, components=3),
    window=16,
    batch_size=16,
    target_schedule=Schedule(epochs=12, learning_rate=1e-2),
    draft_schedule=Schedule(epochs=4, learning_rate=1e-2),
)


def split() -> Split:
    """Bursts: after a `start` two `step`s within seconds, then minutes of nothing."""
    random, events = np.random.default_rng(0), []
    for entity in range(60):
        time = 0.0
        for number in range(24):
            time += random.lognormal(5.0 if number % 3 == 0 else 0.0, 0.3)
            events.append(Event(f"e{entity}", time, "start" if number % 3 == 0 else "step"))
    return split_log(events)


def weights(fitted: Fitted) -> list[torch.Tensor]:
    return [*fitted.model.target.parameters(), *fitted.model.draft.parameters()]


def test_a_model_beats_its_baselines_and_its_draft_covers_it() -> None:
    fitted = fit(split(), RECIPE)
    assert fitted.model.types == ("start", "step")
    assert fitted.test_nll < min(fitted.baselines.values()) - 0.5
    assert abs(fitted.test_nll - fitted.train_nll) < 0.3
    assert fitted.acceptance > 0.75


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    short = Recipe(
        RECIPE.target, RECIPE.draft, 16, 16, Schedule(epochs=2, learning_rate=1e-2), Schedule(epochs=1, learning_rate=1e-2)
    )
    first, again, other = fit(split(), short), fit(split(), short), fit(split(), Recipe(**{**vars(short), "seed": 1}))
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), weights(other), strict=True))


def test_training_leaves_the_random_numbers_of_its_caller_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(split(), Recipe(**{**vars(RECIPE), "target_schedule": Schedule(epochs=1), "draft_schedule": Schedule(epochs=1)}))
    assert torch.equal(torch.rand(3), expected)


def test_a_loss_that_is_never_finite_is_an_error() -> None:
    wild = Recipe(**{**vars(RECIPE), "target_schedule": Schedule(epochs=1, learning_rate=1e30)})
    with pytest.raises(StreamTppError, match="finite"):
        fit(split(), wild)
