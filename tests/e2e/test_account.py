"""The account of the end-to-end tests sees what it is there to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord

from stream_tpp.topologies.settings import Settings, Topics
from stream_tpp.warning.rule import Rule
from tests.e2e.account import Account, held
from tests.e2e.flights import Input, Place

SETTINGS = Settings(topics=Topics(events="e"), rules=(Rule({"late"}, 60.0, 0.5, name="r"),))
SENT = {
    Place(0, 0): Input(b"N1", b"{}", entity="N1"),
    Place(0, 1): Input(b"N1", b"{}", entity="N1", repeat=True),
    Place(1, 0): Input(b"N2", b"nonsense", reason="not_json"),
    Place(1, 1): Input(b"N2", None, reason="tombstone"),
}


def record(value: dict[str, Any] | bytes | None, key: bytes = b"N1", **headers: str) -> ConsumerRecord:
    raw = orjson.dumps(value) if isinstance(value, dict) else value
    sent = tuple((name, text.encode()) for name, text in headers.items())
    return ConsumerRecord("t", 0, 0, 0, 0, key, raw, None, 0, 0, sent)


def letter(offset: int, reason: str, value: bytes | None, topic: str = "e") -> ConsumerRecord:
    where = {"topic": topic, "partition": "1", "offset": str(offset), "timestamp": "1.5"}
    return record(value, b"N2", reason=reason, detail="why", **where)


def alert(id: str, state: str, warning: str = "N1:e:0:0:r") -> ConsumerRecord:
    return record({"id": id, "entity": "N1", "rule": "r", "state": state, "warning": warning})


def sound() -> dict[str, list[ConsumerRecord]]:
    """What a faultless worker writes of SENT."""
    return {
        "forecasts": [record({"id": "N1:e:0:0"})],
        "warnings": [record({"id": "N1:e:0:0:r", "entity": "N1", "rule": "r"})],
        "alerts": [alert("a", "raised"), alert("b", "cleared")],
        "letters": [letter(0, "not_json", b"nonsense"), letter(1, "tombstone", None)],
    }


def account_of(change: Callable[[dict[str, list[ConsumerRecord]]], object]) -> Account:
    written = sound()
    change(written)
    return held(SETTINGS, SENT, **written)


def test_what_a_faultless_worker_writes_is_sound() -> None:
    assert account_of(lambda written: None).sound


@pytest.mark.parametrize(
    ("of", "lost"), [("forecasts", "N1:e:0:0"), ("warnings", "N1:e:0:0:r"), ("letters", "dead letter of 1:1")]
)
def test_what_is_missing_is_lost(of: str, lost: str) -> None:
    assert account_of(lambda written: written[of].pop()).lost == [lost]


def test_the_same_record_again_is_a_copy_and_no_contradiction() -> None:
    done = account_of(lambda written: written["forecasts"].append(written["forecasts"][0]))
    assert (done.copies, done.contradictory, done.lost, done.unasked) == (1, [], [], [])


def test_another_record_under_the_same_id_is_a_contradiction() -> None:
    done = account_of(lambda written: written["forecasts"].append(record({"id": "N1:e:0:0", "counts": 2})))
    assert done.contradictory == ["N1:e:0:0"]


def test_a_forecast_of_a_repeat_was_not_asked_for() -> None:
    done = account_of(lambda written: written["forecasts"].append(record({"id": "N1:e:0:1"})))
    assert done.unasked == ["N1:e:0:1"]


@pytest.mark.parametrize(
    "wrong", [letter(0, "empty", b"nonsense"), letter(0, "not_json", b"nonsens"), letter(0, "not_json", None)]
)
def test_a_dead_letter_with_another_reason_or_other_bytes_is_a_contradiction(wrong: ConsumerRecord) -> None:
    done = account_of(lambda written: written["letters"].__setitem__(0, wrong))
    assert any("dead letter of 1:0" in fault for fault in done.contradictory)


def test_a_dead_letter_of_nothing_that_was_sent_was_not_asked_for() -> None:
    done = account_of(lambda written: written["letters"].append(letter(0, "not_json", b"nonsense", topic="w")))
    assert any("of w" in fault for fault in done.unasked)


def test_an_alert_needs_its_warning_and_its_turn() -> None:
    assert account_of(lambda written: written["alerts"].append(alert("c", "raised", warning="N9:e:0:0:r"))).unasked
    assert account_of(lambda written: written["alerts"].append(alert("c", "cleared"))).contradictory
