"""An alert is a hit if what it warns of follows in time; all else is counted so that it flatters nobody."""

import math

import numpy as np
import pytest

from stream_tpp.evaluation.outcomes import Alert, Outcomes, Scored, auroc, calibration, judge
from stream_tpp.event import Event
from stream_tpp.warning.rule import Rule

RULE = Rule(alarm={"crash", "fire"}, horizon=10.0, threshold=0.5)


def ticks(*times: float, entity: str = "a") -> list[Event]:
    return [Event(entity, time, "tick") for time in times]


def judged(alerts: list[Alert], events: list[Event], scores: list[Scored] | None = None, since: float = 0.0) -> Outcomes:
    return judge(RULE, scores or [], alerts, events, since=since, until=100.0)


@pytest.mark.parametrize(
    ("alarm", "lead"),
    [
        (Event("a", 25.0, "crash"), 5.0),
        (Event("a", 30.0, "fire"), 10.0),
        (Event("a", 30.001, "crash"), None),
        (Event("a", 20.0, "crash"), None),
        (Event("b", 25.0, "crash"), None),
        (Event("a", 25.0, "tick"), None),
    ],
)
def test_a_hit_is_followed_by_an_alarm_event_of_its_entity_within_the_horizon(alarm: Event, lead: float | None) -> None:
    outcomes = judged([Alert("a", 20.0, 0.7)], [alarm])
    assert [verdict.lead for verdict in outcomes.verdicts] == [lead]
    assert outcomes.hits == (lead is not None)


def test_the_lead_is_to_the_first_alarm_event() -> None:
    outcomes = judged([Alert("a", 20.0, 0.7)], [Event("a", 28.0, "fire"), Event("a", 23.0, "crash")])
    assert outcomes.median_lead == 3.0


def test_alerts_before_the_judged_time_or_less_than_a_horizon_before_its_end_are_left_out_even_as_hits() -> None:
    alarms = [Event("a", time, "crash") for time in (12.0, 52.0, 97.0)]
    outcomes = judged([Alert("a", 9.0, 0.7), Alert("a", 50.0, 0.7), Alert("a", 95.0, 0.7)], alarms, since=10.0)
    assert [verdict.alert.raised for verdict in outcomes.verdicts] == [50.0]


def test_alarm_events_of_the_last_horizon_are_left_out_as_well() -> None:
    assert judged([], [Event("a", time, "crash") for time in (50.0, 95.0)]).alarms == 1


def test_the_base_rate_is_of_all_forecasts() -> None:
    scores = [Scored("a", float(at), 0.1) for at in (0, 10, 20, 30)]
    outcomes = judged([], [Event("a", 25.0, "crash")], scores)
    assert outcomes.forecasts == 4
    assert outcomes.base_rate == 0.25


@pytest.mark.parametrize(
    ("alert", "foreseen"),
    [
        (Alert("a", 20.0, 0.7), 1),
        (Alert("a", 20.0, 0.7, cleared=24.0), 0),
        (Alert("a", 20.0, 0.7, cleared=25.0), 1),
        (Alert("a", 25.0, 0.7), 0),
        (Alert("b", 20.0, 0.7), 0),
    ],
)
def test_an_alarm_event_is_foreseen_if_an_alert_stood_before_it(alert: Alert, foreseen: int) -> None:
    outcomes = judged([alert], [*ticks(20.0), Event("a", 25.0, "crash")])
    assert (outcomes.alarms, outcomes.foreseen) == (1, foreseen)


def test_an_alert_that_no_forecast_of_the_last_horizon_upholds_foresees_nothing() -> None:
    alert = Alert("a", 20.0, 0.7)
    assert judged([alert], [*ticks(20.0), Event("a", 31.0, "crash")]).foreseen == 0
    assert judged([alert], [*ticks(20.0, 29.0), Event("a", 31.0, "crash")]).foreseen == 1


def test_nothing_said_and_nothing_happened_is_no_number_rather_than_a_good_one() -> None:
    outcomes = judged([], [])
    assert all(map(math.isnan, (outcomes.precision, outcomes.recall, outcomes.median_lead, outcomes.base_rate, outcomes.auroc)))
    assert outcomes.bins == ()


def test_bins_hold_every_score_once_and_their_rates_make_up_the_base_rate() -> None:
    generator = np.random.default_rng(0)
    scores = np.round(generator.beta(1, 9, 1000), 2)
    came = generator.random(1000) < scores
    bins = calibration(scores, came)
    assert sum(each.count for each in bins) == 1000
    assert sum(each.count * each.rate for each in bins) / 1000 == pytest.approx(came.mean())
    assert all(each.low <= each.mean_score <= each.high for each in bins)
    assert all(abs(each.rate - each.mean_score) < 4 * math.sqrt(0.25 / each.count) for each in bins)


def test_equal_scores_are_one_bin() -> None:
    (only,) = calibration(np.full(50, 0.2), np.arange(50) < 10)
    assert (only.count, only.mean_score, only.rate) == (50, pytest.approx(0.2), pytest.approx(0.2))


def test_auroc_counts_pairs_in_the_right_order_and_ties_by_half() -> None:
    generator = np.random.default_rng(1)
    scores = np.round(generator.random(200), 1)
    came = generator.random(200) < scores
    above = scores[came][:, None] - scores[~came][None, :]
    assert auroc(scores, came) == pytest.approx(((above > 0) + 0.5 * (above == 0)).mean())
    assert auroc(np.array([0.1, 0.9]), np.array([False, True])) == 1.0
