"""Forecasts of many entities at once."""

from __future__ import annotations

import math

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.forecast import Forecaster, Request
from stream_tpp.history import History
from stream_tpp.warning.rule import Rule
from tests.sampling.test_sampler import EPOCH, build, history

RULE = Rule({"b"}, horizon=20_000.0, threshold=0.3)


def request(n: int, quiet: float = 0.0) -> Request:
    past = history(n, n) if n else History()
    return Request(f"entity-{n}", past, (float(past.times[-1]) if n else EPOCH) + quiet, seed=n)


def test_a_forecast_depends_on_its_request_alone() -> None:
    forecaster = Forecaster(build(), [RULE], horizon=30_000.0, paths=32, published=2)
    requests = [request(n, quiet=500.0 * n) for n in (5, 0, 40, 64, 1)]
    together = forecaster.forecast(requests)
    for one, of_many in zip(requests, together, strict=True):
        assert forecaster.forecast([one]) == [of_many]


def test_probabilities_and_quantiles_are_in_order() -> None:
    for forecast in Forecaster(build(), [RULE], horizon=30_000.0).forecast([request(9), request(30, 7_000.0)]):
        assert sum(forecast.next_types.values()) == pytest.approx(1.0)
        assert 0 <= forecast.gap_quantiles["0.1"] < forecast.gap_quantiles["0.5"] < forecast.gap_quantiles["0.9"]
        (score,) = forecast.scores
        assert 0 <= score.low <= score.score <= score.high <= 1
        for counts in forecast.counts.values():
            assert 0 <= counts["p10"] <= counts["p90"]


def test_an_undecided_score_gets_more_paths_and_a_clear_one_does_not() -> None:
    model = build()
    (first,) = Forecaster(model, [RULE], horizon=30_000.0, paths=16, most_paths=16).forecast([request(9)])
    undecided = Rule({"b"}, horizon=20_000.0, threshold=first.scores[0].score)
    clear = Rule({"b"}, horizon=20_000.0, threshold=1.0)
    forecaster = Forecaster(model, [undecided, clear], horizon=30_000.0, paths=16, most_paths=64)
    (forecast,) = forecaster.forecast([request(9)])
    assert forecast.scores[0].paths > 16
    assert forecast.scores[1].paths == 16


def test_no_requests_no_forecasts() -> None:
    assert Forecaster(build(), horizon=1.0).forecast([]) == []


def test_a_rule_of_unknown_types_is_refused_by_name() -> None:
    with pytest.raises(StreamTppError, match="meltdown"):
        Forecaster(build(), [Rule({"meltdown"}, horizon=1.0, threshold=0.5)], horizon=1.0)


def test_published_futures_lie_within_the_horizon() -> None:
    (forecast,) = Forecaster(build(), horizon=30_000.0, published=5).forecast([request(9)])
    assert len(forecast.futures) == 5
    now = request(9).now
    assert all(now <= time <= now + 30_000.0 for path in forecast.futures for time in path.times)
    assert math.isfinite(forecast.gap_quantiles["0.9"])
