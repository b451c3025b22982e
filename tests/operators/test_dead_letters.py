"""Bad input never stops a stream, and nothing of it is lost."""

import orjson
import pytest

from stream_tpp.operators.dead_letters import dead_letter
from stream_tpp.operators.records import Record, Source


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b"\xff\xfe", "not_json"),
        (b'{"entity": "a", "time": NaN, "type": "ok"}', "not_json"),
        (b"[1, 2]", "not_an_object"),
        (b'{"time": 1, "type": "ok"}', "missing_entity"),
        (b'{"entity": "a", "type": "ok"}', "missing_time"),
        (b'{"entity": "a", "time": "soon", "type": "ok"}', "bad_time"),
        (b'{"entity": "a", "time": 1e300, "type": "ok"}', "absurd_time"),
        (b'{"entity": "a", "time": 1, "type": "odd"}', "unknown_type"),
        (b'{"entity": "a", "time": 1, "type": "ok", "note": "%s"}' % (b"x" * 900_000), "too_large"),
        (orjson.dumps({"entity": "x" * 20_000, "time": 1, "type": "ok"}), "oversized_entity"),
    ],
)
def test_what_is_no_event_is_a_dead_letter_and_the_stream_goes_on(drive, event, value, reason) -> None:
    driver = drive()
    driver.now = 1700000000.25
    (letter,) = driver.send(value, key=b"k")
    assert letter.channel == "dead_letters"
    assert (letter.key, letter.value) == (b"k", value)
    assert letter.headers["reason"] == reason.encode()
    assert letter.headers["detail"]
    assert [letter.headers[name] for name in ("topic", "partition", "offset")] == [b"events", b"0", b"0"]
    assert letter.headers["timestamp"] == b"1700000000.25"
    assert driver.counters.dead_lettered == {reason: 1}
    assert driver.send(event("a", 1.0))[0].channel == "forecasts"


def test_an_event_later_than_the_grace_is_a_dead_letter(drive, event) -> None:
    driver = drive(grace=60)
    driver.send(event("a", 100.0))
    assert driver.send(event("a", 40.0))[0].channel == "forecasts"
    (letter,) = driver.send(event("a", 39.0))
    assert letter.headers["reason"] == b"too_late"


def test_an_event_dated_too_far_ahead_is_a_dead_letter_and_makes_no_other_late(drive, event) -> None:
    driver = drive(ahead=60.0)
    driver.now = 1000.0
    (letter,) = driver.send(event("a", 1061.0))
    assert letter.headers["reason"] == b"absurd_time"
    assert driver.send(event("a", 1000.0))[0].channel == "forecasts"


@pytest.mark.parametrize("fault", ["guilty", "nan"])
def test_only_the_event_that_the_engine_fails_on_is_a_dead_letter(drive, event, fault) -> None:
    driver = drive(batch=3, **{fault: frozenset({"b"})})
    for entity in "abc":
        driver.send(event(entity, 1.0))
    assert [output.key for output in driver.of("forecasts")] == [b"a", b"c"]
    (letter,) = driver.of("dead_letters")
    assert letter.value == event("b", 1.0)
    assert letter.headers["reason"] == b"sampler_failed"
    assert letter.headers["offset"] == b"1"


def test_a_value_as_large_as_a_broker_takes_still_fits_a_letter() -> None:
    record = Record(Source("events", 0, 0), 0.0, b"k" * 1000, b"x" * 1_040_000)
    letter = dead_letter(record, "too_large", "x" * 5000)
    assert len(letter.key) + len(letter.value) + sum(map(len, letter.headers.values())) < 1_000_000
    assert letter.headers["truncated"] == b"1040000"


def test_a_record_with_neither_key_nor_value_still_makes_a_record() -> None:
    letter = dead_letter(Record(Source("events", 0, 0), 0.0, None, None), "tombstone", "no value")
    assert (letter.key, letter.value) == (None, b"")
