from collections.abc import Callable

import numpy as np
import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.known_law import against_truth
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.evaluation.sampled import Sampler
from stream_tpp.evaluation.study import Study
from stream_tpp.history import History
from stream_tpp.kernels.residual import Draws
from stream_tpp.model.model import Model
from stream_tpp.processes import Hawkes, Window
from stream_tpp.sampling.native import sampler as native

PROMPTS = [
    Prompt(History(np.cumsum(gaps), np.arange(len(gaps)) % 2, 0.0), float(np.sum(gaps)))
    for gaps in np.random.default_rng(0).exponential(1.0, (30, 5))
]
STUDY = Study(horizon=10.0, paths=30, draws=1000, level=0.01, seed=1)


def test_an_exact_sampler_passes(make_model: Callable[..., Model]) -> None:
    model = make_model()
    against = STUDY.autoregressive(model, PROMPTS)
    found = STUDY.of(model, PROMPTS, Sampler(4, "joint"), against)
    assert found.passed
    assert found.stats.row_passes < against.stats.row_passes
    assert found.next_event.p_gap > 0.001
    assert 0 < found.next_event.gap < 5 * found.next_event.gap_by_chance


def test_a_sampler_that_takes_whatever_is_drafted_does_not(
    make_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    against = STUDY.autoregressive(model, PROMPTS)
    monkeypatch.setattr(native, "is_supported", lambda *any: False)
    monkeypatch.setattr(Draws, "accept", lambda self, n: torch.full((len(self.keys), n), -torch.inf, dtype=torch.float64))
    found = STUDY.of(model, PROMPTS, Sampler(4, "joint"), against)
    assert not found.passed
    assert not found.comparison.passed
    assert min(found.own_law.tests.values()) < 1e-6


def test_a_model_of_another_process_is_told_from_the_truth(make_model: Callable[..., Model]) -> None:
    model, process = make_model(), Hawkes([0.4, 0.4], [[1.0, 0.5], [0.1, 1.0]], 2.0)
    found = against_truth(model, process, Window(0.0, 20.0), Sampler(4), sequences=60, seed=1)
    assert found.rescaling.statistic > 3 * found.rescaling.band
    assert found.likelihood.mean > 3 * found.likelihood.standard_error


def test_a_model_with_other_types_than_the_process_is_refused(make_model: Callable[..., Model]) -> None:
    with pytest.raises(StreamTppError, match="trained on other data"):
        against_truth(make_model(types=("a", "b")), Hawkes([1.0], [[0.5]], 2.0), Window(0.0, 5.0), Sampler(0), 5, seed=0)
