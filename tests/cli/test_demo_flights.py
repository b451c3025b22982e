"""What the demo replays comes after all that its model learned from, and what is broken among it is really broken."""

import json
import math
from pathlib import Path

import pytest

from stream_tpp.cli.demo_flights import DAY, RULE, bad_records, busiest, choose, learned_until
from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields, InvalidEvent, decode_event

CUT = 1383264000.0  # 1 November 2013


def log() -> list[Event]:
    """Aircraft that depart every so many hours, the first ones most often."""
    return [
        Event(f"N{number:03}", CUT + hour * 3600.0, "on_time")
        for number in range(250)
        for hour in range(-100 * 24, 30 * 24, 6 + number)
    ]


def test_nothing_that_is_judged_lies_before_the_cut_and_the_warm_up_lies_before_it() -> None:
    flights = choose(log(), CUT, 5)
    assert flights.days == 5
    assert all(CUT <= event.time < CUT + 5 * DAY for event in flights.judged)
    assert all(CUT - 7 * DAY <= event.time < CUT for event in flights.warm_up)
    assert flights.judged
    assert flights.warm_up


def test_what_is_known_reaches_a_horizon_past_the_end_so_that_the_last_alerts_can_be_judged() -> None:
    flights = choose(log(), CUT, 5)
    assert max(event.time for event in flights.known) >= flights.until + RULE.horizon
    assert {event for event in flights.known if event.time < flights.until} == {*flights.warm_up, *flights.judged}


def test_the_fleet_is_chosen_by_what_came_before_the_cut_alone() -> None:
    late_bloomer = [Event("N999", CUT + hour * 60.0, "on_time") for hour in range(20_000)]
    flights = choose(log() + late_bloomer, CUT, 5)
    assert flights.aircraft == 200
    assert "N999" not in {event.entity for event in flights.judged}
    assert {event.entity for event in flights.known} <= {f"N{number:03}" for number in range(200)}


def test_fewer_days_are_the_first_of_them() -> None:
    flights = choose(log(), CUT, 5)
    fewer = flights.first(2)
    assert fewer == choose(log(), CUT, 2)
    assert flights.first(9) == flights


def test_the_busiest_span_counts_what_falls_into_it() -> None:
    events = [Event("a", time, "x") for time in (0.0, 100.0, 101.0, 102.0, 200.0)]
    assert busiest(events, 10.0) == pytest.approx(0.3)
    assert busiest([], 10.0) == 0.0


def test_every_bad_record_but_a_late_one_and_one_of_unknown_type_is_no_event() -> None:
    reasons = []
    for _, value in bad_records("N14228", CUT):
        try:
            event = decode_event(value, Fields())
        except InvalidEvent as invalid:
            reasons.append(invalid.reason)
        else:
            reasons.append(event.type if event.type != "on_time" else f"{(CUT - event.time) / DAY:.0f} days late")
    no_events = [
        "not_json",
        "empty",
        "tombstone",
        "missing_entity",
        "missing_time",
        "not_json",
        "bad_time",
        "absurd_time",
        "too_large",
    ]
    assert sorted(reasons) == sorted([*no_events, "diverted to Boston", "40 days late"])


def test_the_model_says_until_when_it_learned(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"facts": {"command": "stream-tpp fit flights --until 2013-11-01 --json"}}))
    assert math.isclose(learned_until(tmp_path), CUT)


@pytest.mark.parametrize(
    "facts", [{}, {"command": "stream-tpp fit flights"}, {"command": "fit --until soon"}, {"command": "--until"}]
)
def test_a_model_that_does_not_say_it_is_refused(tmp_path: Path, facts: dict[str, str]) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"facts": facts}))
    with pytest.raises(StreamTppError, match="does not say until when it learned: fit it with"):
        learned_until(tmp_path)


def test_no_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match="There is no model in"):
        learned_until(tmp_path / "nowhere")
