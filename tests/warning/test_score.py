"""The score of a rule: the probability that counting paths would converge to, with less noise."""

from __future__ import annotations

import math

import pytest
import torch

from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.warning.score import Evidence, pooled
from tests.sampling.test_sampler import build, futures, history

HORIZON = 30_000.0
ALARM = torch.tensor([False, True, False, True])


def evidence(paths: int, seed: int = 0, first_path: int = 0) -> Evidence:
    plan = Plan(paths=paths, horizon=HORIZON, permitted=~ALARM, first_path=first_path)
    return Evidence.of(futures(build(), plan, [history(20)], [seed]), 0)


@pytest.fixture(scope="module")
def free() -> Futures:
    """Futures with no type suppressed, beyond the rule's horizon too."""
    return futures(build(), Plan(paths=10_000, horizon=1.3 * HORIZON), [history(20)], [1])


def first_alarm(free: Futures) -> torch.Tensor:
    hits = ALARM[free.types[0].clamp(min=0)] & (free.types[0] >= 0)
    return torch.where(hits, free.leads[0], torch.inf).amin(-1)


def test_the_score_is_the_share_of_futures_with_an_alarm(free: Futures) -> None:
    n = len(free.leads[0])
    count = float((first_alarm(free) <= HORIZON).double().mean())
    score = evidence(4_000).score("rule")
    error = math.hypot(math.sqrt(count * (1 - count) / n), (score.high - score.low) / (2 * 1.96))
    assert abs(score.score - count) < 3.5 * error
    # What must not pass: alarms that come after the horizon.
    late = float((first_alarm(free) <= 1.3 * HORIZON).double().mean())
    assert abs(score.score - late) > 3.5 * error


def test_the_first_alarm_comes_when_the_lead_quantiles_say(free: Futures) -> None:
    first = first_alarm(free)
    first = first[first <= HORIZON]
    quantiles = evidence(4_000).score("rule").lead_quantiles
    for level, lead in quantiles.items():
        assert float((first < lead).double().mean()) == pytest.approx(float(level), abs=0.025)


def test_it_is_less_noisy_than_counting() -> None:
    score = evidence(2_000).score("rule")
    crude = 1.96 * math.sqrt(score.score * (1 - score.score) / 2_000)
    assert (score.high - score.low) / 2 < 0.7 * crude


def test_paths_in_two_calls_make_the_score_of_one() -> None:
    whole = evidence(64).score("rule")
    parts = pooled([evidence(32), evidence(32, first_path=32)]).score("rule")
    assert parts.score == pytest.approx(whole.score, abs=1e-12)
    assert parts.paths == 64


def test_where_nothing_happens_the_score_is_zero_but_not_certain() -> None:
    silent = Evidence(torch.zeros(64, 0, dtype=torch.float64), torch.zeros(64, 0, dtype=torch.float64)).score("rule")
    assert silent.score == 0.0
    assert silent.high == pytest.approx(1 - 0.05 ** (1 / 64))
    assert silent.lead_quantiles == {}


def test_the_interval_holds_the_score_as_often_as_it_says() -> None:
    truth = evidence(8_000, seed=99).score("rule").score
    plan = Plan(paths=64, horizon=HORIZON, permitted=~ALARM)
    many = futures(build(), plan, [history(20)] * 200, list(range(200)))
    scores = [Evidence.of(many, row).score("rule") for row in range(200)]
    held = sum(score.low <= truth <= score.high for score in scores) / 200
    assert 0.90 < held <= 0.99
