"""Samples against the model's own law: uniform for the model, not for another one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from stream_tpp.evaluation.own_law import examine, judge
from stream_tpp.evaluation.paths import Paths
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.evaluation.sampled import Sampler, sample_paths, typical_horizon
from stream_tpp.history import History
from stream_tpp.model.model import Model


def prompts() -> list[Prompt]:
    """Nothing before, longer than the window of 6, one event, quiet for a while."""
    long = History(np.cumsum([0.3, 1.0, 2.0, 0.1, 0.5, 4.0, 0.2, 0.2, 0.7]), np.array([0, 1, 0, 0, 1, 1, 0, 1, 0]), 0.0)
    one = History(np.array([1.7e9]), np.array([1]))
    return [Prompt(History(start=5.0), 5.0), Prompt(long, float(long.times[-1])), Prompt(one, 1.7e9), Prompt(long, 11.0)]


@pytest.mark.parametrize("sampler", [Sampler(0), Sampler(5, "joint"), Sampler(3, "block")])
def test_samples_of_a_model_are_uniform_under_its_own_law(make_model: Callable[..., Model], sampler: Sampler) -> None:
    model = make_model()
    sampled = sample_paths(model, prompts(), 10.0, 400, sampler, seed=1)
    judged = judge(model, prompts(), sampled.paths, sampled.complete)
    assert len(judged.gap) == len(sampled.paths.leads) > 2000
    assert min(examine(judged, 0.01).tests.values()) > 0.01


def test_samples_of_another_model_are_not(make_model: Callable[..., Model]) -> None:
    model, other = make_model(), make_model(1)
    sampled = sample_paths(other, prompts(), 10.0, 150, Sampler(0), seed=1)
    assert min(examine(judge(model, prompts(), sampled.paths, sampled.complete), 0.01).tests.values()) < 1e-6


def test_swapped_types_and_longer_gaps_are_seen_each_where_it_belongs(make_model: Callable[..., Model]) -> None:
    model = make_model()
    sampled = sample_paths(model, prompts(), 10.0, 300, Sampler(0), seed=2)
    swapped = Paths(sampled.paths.leads, 1 - sampled.paths.types, sampled.paths.path, sampled.paths.strata, 10.0)
    assert examine(judge(model, prompts(), swapped, sampled.complete), 0.01).tests["type"] < 1e-4
    longer = Paths(1.2 * sampled.paths.leads, sampled.paths.types, sampled.paths.path, sampled.paths.strata, 12.0)
    assert examine(judge(model, prompts(), longer, sampled.complete), 0.01).tests["gap"] < 1e-4


def test_paths_without_events_have_the_likelihood_of_silence(make_model: Callable[..., Model]) -> None:
    """exp of the log likelihood of an empty path is the chance of one, which is its share among many samples."""
    model = make_model()
    some = [prompts()[0], prompts()[3]]
    sampled = sample_paths(model, some, 0.7, 4000, Sampler(0), seed=3)
    silent = np.setdiff1d(np.arange(len(sampled.paths)), sampled.paths.path)
    likelihood = judge(model, some, sampled.paths, sampled.complete).log_likelihood
    for stratum in range(2):
        among = silent[sampled.paths.strata[silent] == stratum]
        chance = np.exp(likelihood[among])
        # Up to the rounding of float32: on some processors a row's last bit depends on where in a batch it stands.
        assert np.ptp(chance) < np.finfo(np.float32).eps
        assert abs(len(among) - 4000 * chance[0]) < 4 * np.sqrt(4000 * chance[0] * (1 - chance[0]))


def test_likelihoods_of_paths_of_one_event_integrate_to_their_share(make_model: Callable[..., Model]) -> None:
    """The density of exactly one event within the horizon, integrated over its time and type."""
    model, prompt, horizon = make_model(), prompts()[1], 1.0
    grid = (np.arange(4000) + 0.5) / 4000 * horizon
    times, types = np.tile(grid, 2), np.repeat([0, 1], 4000)
    paths = Paths(times, types, np.arange(8000), np.zeros(8000, dtype=np.int64), horizon)
    total = np.exp(judge(model, [prompt], paths, np.ones(8000, dtype=bool)).log_likelihood).sum() * horizon / 4000
    sampled = sample_paths(model, [prompt], horizon, 8000, Sampler(0), seed=4)
    share = (np.bincount(sampled.paths.path, minlength=8000) == 1).mean()
    assert abs(share - total) < 4 * np.sqrt(share * (1 - share) / 8000)


def test_paths_cut_by_their_number_of_events_have_no_quiet_end(make_model: Callable[..., Model]) -> None:
    model, prompt = make_model(), prompts()[1]
    futures = model.sample([prompt.history], now=prompt.now, horizon=50.0, max_events=3, paths=1500, seed=5, draft_length=0)
    complete = futures.complete.numpy().ravel()
    assert not complete.all()
    judged = judge(model, [prompt], Paths.of_futures(futures, 50.0), complete)
    assert stats.kstest(judged.gap, "uniform").pvalue > 0.01


def test_a_planted_deviation_of_the_size_called_detectable_is_found(make_model: Callable[..., Model]) -> None:
    model = make_model()
    sampled = sample_paths(model, prompts(), 10.0, 150, Sampler(0), seed=6)
    judged = judge(model, prompts(), sampled.paths, sampled.complete)
    size, found = examine(judged, 0.01).power["gap"], 0
    rng, n = np.random.default_rng(0), len(judged.gap)
    for _ in range(60):
        # A shift of a share `size` across the median: F(1/2) becomes 1/2 + size.
        drawn = rng.random(n)
        drawn = np.where((drawn > 0.5) & (rng.random(n) < 2 * size), drawn - 0.5, drawn)
        found += examine(replace(judged, gap=drawn, type=rng.random(n)), 0.01).tests["gap"] < 0.01
    assert stats.binom.ppf(0.001, 60, 0.8) <= found


def test_the_typical_horizon_holds_about_as_many_events_as_asked(make_model: Callable[..., Model]) -> None:
    model = make_model()
    horizon = typical_horizon(model, prompts(), 10, seed=1)
    sampled = sample_paths(model, prompts(), horizon, 50, Sampler(0), seed=2)
    assert 4 < len(sampled.paths.leads) / 200 < 25


def test_many_prompts_are_sampled_in_their_order_with_futures_of_their_own(make_model: Callable[..., Model]) -> None:
    model = make_model()
    many = prompts() * 10
    sampled = sample_paths(model, many, 10.0, 2, Sampler(2), seed=1)
    assert len(sampled.paths) == 80
    assert sampled.paths.strata.max() == 39
    assert (np.diff(sampled.paths.path) >= 0).all()
    counts = np.bincount(sampled.paths.path, minlength=80).reshape(10, 8)
    assert (counts.std(axis=0) > 0).all()  # the same prompt in another place has other futures
