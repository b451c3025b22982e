import json
import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.errors import StreamTppError
from stream_tpp.event import EARLIEST, LATEST, Event, Fields, InvalidEvent, decode_event, parse_event, to_seconds

GOOD = {"entity": "N711MQ", "time": 1357035600.5, "type": "on_time", "id": "a-1"}


def reason(raw: bytes | None, **settings: Any) -> str:
    with pytest.raises(InvalidEvent) as caught:
        decode_event(raw, Fields(), **settings)
    assert caught.value.detail == str(caught.value)
    assert caught.value.detail.endswith(".")
    return caught.value.reason


def with_(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_good_record_becomes_an_event() -> None:
    assert decode_event(json.dumps(GOOD).encode(), Fields()) == Event("N711MQ", 1357035600.5, "on_time", "a-1")


def test_the_id_is_optional() -> None:
    assert parse_event({"entity": "a", "time": 0, "type": "x"}, Fields()).id is None
    assert parse_event({"entity": "a", "time": 0, "type": "x", "id": None}, Fields()).id is None


def test_whole_numbers_name_entities_types_and_ids() -> None:
    assert parse_event({"entity": 17, "time": 0, "type": 3, "id": np.int64(9)}, Fields()) == Event("17", 0.0, "3", "9")


def test_fields_are_found_under_foreign_names_and_the_rest_is_ignored() -> None:
    fields = Fields(entity="case", time="at", type="activity", id="uuid", time_unit="ms")
    record = {"case": "c", "at": 1500, "activity": "x", "uuid": "u", "time": "nonsense", "entity": None}
    assert parse_event(record, fields) == Event("c", 1.5, "x", "u")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "not_json"),
        (b"\xff\xfe{", "not_json"),
        (b"[" * 5000, "not_json"),
        (b'{"entity": "a", "time": NaN, "type": "x"}', "not_json"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b"{}", "missing_entity"),
        (with_(entity=None), "missing_entity"),
        (with_(entity=""), "bad_entity"),
        (with_(entity="  "), "bad_entity"),
        (with_(entity=["a"]), "bad_entity"),
        (with_(entity=1.5), "bad_entity"),
        (with_(entity=True), "bad_entity"),
        (with_(time=None), "missing_time"),
        (with_(time="soon"), "bad_time"),
        (with_(time="1357035600"), "bad_time"),
        (with_(time=True), "bad_time"),
        (with_(time={}), "bad_time"),
        (with_(time=1357035600500), "absurd_time"),
        (with_(time=-1e300), "absurd_time"),
        (with_(time="0001-01-01T00:00:00Z"), "absurd_time"),
        (with_(time="9999-12-31"), "absurd_time"),
        (with_(type=None), "missing_type"),
        (with_(type=""), "bad_type"),
        (with_(type=0.5), "bad_type"),
        (with_(id=""), "bad_id"),
        (with_(id=[1]), "bad_id"),
    ],
)
def test_each_kind_of_bad_record_has_its_reason(raw: bytes | None, expected: str) -> None:
    assert reason(raw) == expected


def test_a_record_over_the_limit_is_too_large_before_it_is_decoded() -> None:
    assert reason(b"{" * 65537) == "too_large"
    assert reason(with_(), max_bytes=10) == "too_large"
    assert decode_event(with_(), Fields(), max_bytes=len(with_())).entity == "N711MQ"


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, pytest.param(10**5000, id="huge"), np.float32("nan")])
def test_a_time_that_is_not_finite_is_no_time(time: object) -> None:
    with pytest.raises(InvalidEvent) as caught:
        to_seconds(time, "s")
    assert caught.value.reason == "bad_time"


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        (1357035600.25, "s"),
        (1357035600250, "ms"),
        (1357035600250000, "us"),
        (1357035600250000000, "ns"),
        (np.int64(1357035600250000000), "ns"),
    ],
)
def test_numbers_are_read_in_their_unit(number: object, unit: str) -> None:
    assert to_seconds(number, unit) == 1357035600.25


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-01T10:20:00.250Z",
        "2013-01-01T10:20:00.250+00:00",
        "2013-01-01 05:20:00.25-05:00",
        "2013-01-01T10:20:00.250",
        " 20130101T102000.250Z ",
    ],
)
def test_iso_text_is_read_in_its_zone_or_as_utc(text: str) -> None:
    assert to_seconds(text, "s") == to_seconds(text, "iso") == 1357035600.25


def test_datetimes_are_read_in_their_zone_or_as_utc() -> None:
    naive = datetime(2013, 1, 1, 10, 20)
    assert to_seconds(naive, "iso") == to_seconds(naive.replace(tzinfo=UTC), "iso") == 1357035600.0
    assert to_seconds(naive.replace(tzinfo=timezone(timedelta(hours=-5))), "iso") == 1357035600.0 + 5 * 3600


def test_unit_iso_refuses_numbers() -> None:
    with pytest.raises(InvalidEvent) as caught:
        to_seconds(1357035600, "iso")
    assert caught.value.reason == "bad_time"


def test_an_unknown_time_unit_is_refused_when_the_fields_are_named() -> None:
    with pytest.raises(StreamTppError, match="'minutes' is unknown: use one of s, ms, us, ns, iso"):
        Fields(time_unit="minutes")


def test_text_that_utf8_cannot_carry_names_nothing() -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_event({"entity": "\ud800", "time": 0, "type": "x"}, Fields())
    assert caught.value.reason == "bad_entity"
    assert caught.value.detail.isascii()


def test_an_invalid_event_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvalidEvent("bad_time", "The time is nan.")))
    assert (error.reason, error.detail) == ("bad_time", "The time is nan.")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
times = st.one_of(json_values, st.datetimes().map(datetime.isoformat), st.text("0123456789-:TZ+. W", max_size=24))
records = st.fixed_dictionaries({}, optional={"entity": json_values, "time": times, "type": json_values, "id": json_values})


@given(
    st.one_of(
        st.none(),
        st.binary(max_size=64),
        json_values.map(lambda value: json.dumps(value).encode()),
        records.map(lambda record: json.dumps(record).encode()),
        records.map(lambda record: json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    ),
    st.sampled_from(["s", "ms", "us", "ns", "iso"]),
)
def test_any_bytes_are_an_event_or_an_invalid_event(raw: bytes | None, unit: str) -> None:
    try:
        event = decode_event(raw, Fields(time_unit=unit))
    except InvalidEvent as invalid:
        invalid.detail.encode()
        return
    assert event.entity.strip()
    assert event.type.strip()
    assert EARLIEST <= event.time <= LATEST
    assert event.id is None or event.id


@given(st.dictionaries(st.sampled_from(["entity", "time", "type", "id"]), st.integers() | st.text() | st.floats()))
def test_any_decoded_record_is_an_event_or_an_invalid_event(record: dict[str, object]) -> None:
    try:
        event = parse_event(record, Fields())
    except InvalidEvent:
        return
    assert isinstance(event.time, float)
    assert event.entity.encode()
