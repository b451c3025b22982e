"""One call from a split log to a model that is worth more than its baselines."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.fidelity import compare
from stream_tpp.evaluation.paths import Paths
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.kernels.law import Law
from stream_tpp.kernels.residual import Draws
from stream_tpp.kernels.verification import MODES, Verdict, bonus
from stream_tpp.model.binned import BinnedHead
from stream_tpp.model.bins import Bins
from stream_tpp.model.config import DraftConfig, DraftName, TargetConfig
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.training.data import Split, split_log, standardised_gaps
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


BINNED = replace(RECIPE, target=replace(RECIPE.target, head="binned", bins=50))


@pytest.fixture(scope="module")
def binned() -> Fitted:
    """A binned model whose draft has learned little."""
    return fit(split(), replace(BINNED, draft_schedule=Schedule(epochs=1, learning_rate=3e-3)))


def test_bins_are_cut_from_the_training_gaps_and_shared_by_target_and_draft(binned: Fitted) -> None:
    drawn = split()
    expected = Bins.fit(standardised_gaps(drawn.train, binned.model.scale), 50)
    draft = binned.model.draft
    assert isinstance(draft, AnchoredDraft)
    for head in (binned.model.target.head, draft.head):
        assert isinstance(head, BinnedHead)
        assert torch.equal(head.bins.edges, expected.edges)
        assert torch.equal(head.bins.knots, expected.knots)
    assert binned.test_nll < min(binned.baselines.values()) - 0.5


@pytest.mark.parametrize("kind", [kind for kind in get_args(DraftName) if kind != "anchored"])
def test_every_draft_can_be_had_with_bins(kind: DraftName) -> None:
    short = Schedule(epochs=1, learning_rate=1e-2)
    target = replace(BINNED.target, layers=2)
    recipe = replace(BINNED, target=target, draft=DraftConfig(kind, 16, 3), target_schedule=short, draft_schedule=short)
    fitted = fit(split(), replace(recipe, distill=kind != "lstm"))
    assert 0 < fitted.acceptance < 1
    futures = fitted.model.sample([split().test[0].history], max_events=8, paths=16)
    assert bool(torch.isfinite(futures.times).all())


def test_few_distinct_gaps_leave_fewer_bins() -> None:
    random = np.random.default_rng(0)
    clocks = {f"e{entity}": np.cumsum(random.choice([1.0, 60.0, 3600.0], 12)).tolist() for entity in range(30)}
    events = [Event(entity, time, "tick") for entity, times in clocks.items() for time in times]
    short = Schedule(epochs=1)
    model = fit(split_log(events), replace(BINNED, target_schedule=short, draft_schedule=short)).model
    assert 2 < model.config.target.bins < 10
    gaps = model.sample([History()], max_events=20, paths=50).leads[0].diff(dim=-1)
    assert len(gaps.unique()) > 900  # no gap twice: drawn inside the bins, not on their edges


def believing(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    """Takes whatever was drafted."""
    return bonus(p, limits, draws)


@pytest.mark.parametrize("mode", [*MODES, "believing"])
def test_a_trained_binned_model_is_sampled_exactly(binned: Fitted, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES, "believing", believing)
    histories = [observed.history for observed in split().test]
    assert len(histories) == 6

    def paths(draft_length: int, seed: int) -> Paths:
        plan = {"max_events": 9, "paths": 150, "draft_length": draft_length, "mode": mode}
        return Paths.of_futures(binned.model.sample(histories, seed=seed, **plan), None)  # type: ignore[arg-type]

    found = compare(paths(6, seed=1), paths(0, seed=2), permutations=1999, power=False)
    assert found.passed == (mode != "believing"), found.tests


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
