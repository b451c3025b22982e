"""Every event is accounted for from the records of the topics alone, and each way to go wrong has its own count."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from stream_tpp.topologies.ledger import Audit, Entry, Ledger, Role, latency
from stream_tpp.warning.rule import Rule

RULE = Rule(alarm={"crash"}, horizon=60.0, threshold=0.5, name="crashes")
SCORES = [0.1, 0.9, 0.8, 0.1]


def entry(role: Role, offset: int, record: Any, key: str | None = "a", at: float = 0.0) -> Entry:
    value = record if isinstance(record, bytes) else orjson.dumps(record)
    return Entry(role, 0, offset, at, None if key is None else key.encode(), value)


def standing_for(entry: Entry, *offsets: int) -> Entry:
    return replace(entry, headers={"stands_for": ",".join(map(str, offsets)).encode()})


def event(offset: int, id: str | None = None) -> Entry:
    return entry("events", offset, {"entity": "a", "time": float(offset), "type": "tick", "id": id}, at=float(offset))


def forecast(offset: int, **changes: Any) -> Entry:
    source = {"topic": "events", "partition": 0, "offset": offset}
    record = {"id": f"a:events:0:{offset}", "entity": "a", "made_at": float(offset), "source": source, "model": "m"}
    return entry("forecasts", offset, record | changes, at=offset + 0.25)


def warning(offset: int, score: float) -> Entry:
    source = {"topic": "events", "partition": 0, "offset": offset}
    id = f"a:events:0:{offset}:crashes"
    record = {"id": id, "entity": "a", "made_at": float(offset), "source": source, "rule": "crashes", "score": score}
    return entry("warnings", offset, record)


def alert(offset: int, state: str, **changes: Any) -> Entry:
    id = f"a:events:0:{offset}:crashes"
    record = {"id": f"{id}:{state}", "entity": "a", "rule": "crashes", "state": state, "at": float(offset), "warning": id}
    return entry("alerts", offset, record | changes)


def dead_letter(offset: int, value: bytes, key: str | None = "a", **changes: str) -> Entry:
    headers = {"reason": "not_json", "topic": "events", "partition": "0", "offset": str(offset)} | changes
    named = {name: text.encode() for name, text in headers.items()}
    return Entry("dead_letters", 0, offset, 0.0, None if key is None else key.encode(), value, named)


def run() -> list[Entry]:
    """Four good events and a bad one, and all that comes of them: an alert is raised at the second, cleared at the fourth."""
    entries = [entry("events", 4, b"{"), dead_letter(4, b"{"), alert(1, "raised"), alert(3, "cleared")]
    for offset, score in enumerate(SCORES):
        entries += [event(offset), forecast(offset), warning(offset, score)]
    return entries


def audit(entries: Iterable[Entry], rules: Iterable[Rule] = (RULE,)) -> Audit:
    ledger = Ledger("events", rules)
    for each in entries:
        ledger.take(each)
    return ledger.audit()


def test_a_sound_run_adds_up() -> None:
    account = audit(run())
    assert account.sound
    assert (account.events_in, account.processed, account.dead_lettered) == (5, 4, 1)
    assert (account.forecasts, account.warnings, account.alerts_raised, account.alerts_cleared) == (4, 4, 1, 1)
    assert account.reasons == {"not_json": 1}
    assert not account.faults


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (dead_letter(4, b"{"), "offset 4 of partition 0 has neither"),
        (warning(0, 0.1), "warning a:events:0:0:crashes"),
        (alert(1, "raised"), "alert raised by warning a:events:0:1:crashes"),
    ],
)
def test_what_is_missing_is_lost(without: Entry, said: str) -> None:
    account = audit(each for each in run() if each != without)
    assert account.lost == 1
    assert not account.sound
    assert said in account.faults[0]


def test_an_event_without_a_forecast_is_lost_and_its_warning_belongs_to_none() -> None:
    account = audit(each for each in run() if each != forecast(0))
    assert (account.events_in, account.processed, account.lost, account.contradictory) == (5, 3, 1, 1)


def test_an_alert_ends_a_horizon_after_its_latest_warning_by_whatever_is_heard_of_next() -> None:
    raised = [event(10), forecast(10), warning(10, 0.6), alert(10, "raised")]
    at_the_last = [event(70), forecast(70), warning(70, 0.4)]
    assert audit([*raised, *at_the_last]).sound
    too_late = [event(71), forecast(71), warning(71, 0.4)]
    lapsed = alert(10, "cleared", id="a:events:0:10:crashes:lapsed", at=70.0)
    assert audit([*raised, *too_late, lapsed]).sound
    assert audit([*raised, *too_late]).lost == 1
    assert audit([*raised, *at_the_last, *too_late, lapsed]).contradictory == 1


@pytest.mark.parametrize("again", [forecast(2), warning(2, 0.8), alert(1, "raised"), dead_letter(4, b"{")])
def test_the_same_record_again_is_duplicated(again: Entry) -> None:
    account = audit([*run(), again])
    assert (account.duplicated, account.contradictory, account.lost) == (1, 0, 0)
    assert account.alerts_raised == account.dead_lettered == 1
    assert not account.sound


@pytest.mark.parametrize(
    "odd",
    [
        forecast(2, made_at=3.0),
        forecast(9),
        forecast(2, id="a:events:0:3"),
        warning(2, 0.7),
        warning(9, 0.1),
        alert(2, "raised"),
        alert(1, "raised", score=0.3),
        dead_letter(0, b"{"),
        dead_letter(4, b"}"),
        dead_letter(4, b"{", partition="nowhere"),
        entry("forecasts", 9, b"[]"),
        entry("alerts", 9, b"\xff"),
        entry("warnings", 9, {}, key=None),
    ],
)
def test_what_is_neither_owed_nor_the_same_is_contradictory(odd: Entry) -> None:
    account = audit([*run(), odd])
    assert account.contradictory >= 1
    assert not account.sound
    assert any(fault.startswith("contradictory") for fault in account.faults)


def test_a_record_under_another_key_is_contradictory() -> None:
    stray = forecast(0)
    odd = Entry(stray.role, 0, 0, stray.timestamp, b"b", stray.value)
    account = audit([odd, *(each for each in run() if each != stray)])
    assert account.contradictory >= 1


def test_a_repeat_of_an_event_owes_nothing_and_counts_as_processed() -> None:
    account = audit([event(0, id="x"), forecast(0), warning(0, 0.1), event(1, id="x")])
    assert account.sound
    assert (account.events_in, account.processed, account.repeats, account.forecasts) == (2, 2, 1, 1)


def test_a_repeat_of_a_lost_event_is_lost_as_well() -> None:
    assert audit([event(0, id="x"), event(1, id="x")]).lost == 2


def test_events_of_one_id_in_different_entities_are_no_repeats() -> None:
    other = entry("events", 1, {"entity": "b", "time": 1.0, "type": "tick", "id": "x"}, key="b")
    assert audit([event(0, id="x"), forecast(0), warning(0, 0.1), other]).lost == 1


def test_events_that_a_newer_forecast_stands_for_owe_nothing_of_their_own() -> None:
    stood = [standing_for(forecast(2), 0, 1), standing_for(warning(2, 0.9), 0, 1)]
    entries = [event(0), event(1), event(2), *stood, alert(2, "raised")]
    account = audit(entries)
    assert account.sound, account.faults
    assert (account.processed, account.conflated, account.forecasts) == (3, 2, 1)
    # Without the header two events are lost, and a header can't make up for one that is named by nobody.
    assert audit([*entries[:3], forecast(2), warning(2, 0.9), alert(2, "raised")]).lost == 2
    assert audit([*entries[:3], standing_for(forecast(2), 0), warning(2, 0.9), alert(2, "raised")]).lost == 1


def test_after_a_crash_an_event_may_have_its_own_forecast_and_be_stood_for_too() -> None:
    stood = [standing_for(forecast(1), 0), standing_for(warning(1, 0.1), 0)]
    # Written for the first time after the newer one: too late to raise an alert.
    late = [forecast(0), warning(0, 0.9), forecast(1), warning(1, 0.1)]
    account = audit([event(0), event(1), *stood, *late])
    assert (account.lost, account.contradictory, account.conflated, account.alerts_raised) == (0, 0, 0, 0), account.faults
    # Where nothing says so, its warning counts, as ever.
    assert audit([event(0), event(1), forecast(1), warning(1, 0.1), *late[:2]]).lost == 1


@pytest.mark.parametrize("offset", [2, 3, 7])
def test_a_forecast_can_stand_for_no_event_but_an_earlier_one_of_its_entity(offset: int) -> None:
    other = entry("events", 7, {"entity": "b", "time": 1.0, "type": "tick"}, key="b")
    account = audit([*(each for each in run() if each != forecast(2)), other, standing_for(forecast(2), offset)])
    assert account.contradictory == 1
    assert "stands for" in " ".join(account.faults)


def test_what_another_model_makes_again_is_neither_the_same_nor_a_contradiction() -> None:
    account = audit([*run(), forecast(2, model="newer")])
    assert (account.remade, account.duplicated, account.contradictory) == (1, 0, 0)
    assert not account.sound


def test_the_dead_letter_of_a_warning_is_none_of_the_events() -> None:
    account = audit([*run(), dead_letter(0, b"{", topic="warnings")])
    assert account.sound
    assert account.dead_lettered == 1


def test_a_cut_dead_letter_need_not_hold_all_bytes() -> None:
    entries = [each for each in run() if each != dead_letter(4, b"{")]
    assert audit([*entries, dead_letter(4, b"", truncated="1")]).sound


def test_settled_is_when_so_many_events_are_there_and_nothing_is_owed() -> None:
    ledger = Ledger("events", [RULE])
    entries = run()
    for each in entries[1:]:
        ledger.take(each)
    assert not ledger.settled(5)
    ledger.take(entries[0])
    assert ledger.settled(5)
    assert not ledger.settled(6)


def test_latencies_are_ranked_for_quantiles_from_a_time_on() -> None:
    late = Entry("forecasts", 0, 9, 9.0, b"a", forecast(2).value)
    account = audit(late if each == forecast(2) else each for each in run())
    assert account.latencies == [(0.0, 0.25), (1.0, 0.25), (2.0, 7.0), (3.0, 0.25)]
    assert latency(account, 0.5) == 0.25
    assert latency(account, 0.99) == 7.0
    assert latency(account, 0.99, since=3.0) == 0.25
    assert math.isnan(latency(account, 0.5, since=4.0))
