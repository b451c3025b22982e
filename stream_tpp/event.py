"""An event, and the way from a foreign record to one: every record is an `Event` or an `InvalidEvent`, nothing else."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from stream_tpp.errors import StreamTppError

UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
TIME_UNITS = (*UNITS_PER_SECOND, "iso")

# Seconds outside these bounds (the years 1653 and 5138) are no event's time: milliseconds taken for seconds, or the
# sentinels 0001-01-01 and 9999-12-31 of other systems.
EARLIEST, LATEST = -1e10, 1e11


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an entity: `time` in seconds (Unix epoch, or the log's own origin), float64."""

    entity: str
    time: float
    type: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of a foreign record hold an event, and the unit of numbers in its time field.

    `time_unit` is s, ms, us, ns or iso. Text in the time field is always read as ISO 8601 (UTC where it names no zone);
    iso means that numbers are refused.
    """

    entity: str = "entity"
    time: str = "time"
    type: str = "type"
    id: str = "id"
    time_unit: str = "s"

    def __post_init__(self) -> None:
        if self.time_unit not in TIME_UNITS:
            raise StreamTppError(f"The time unit {self.time_unit!r} is unknown: use one of {', '.join(TIME_UNITS)}.")


class InvalidEvent(StreamTppError):
    """A record that is no event. `reason` is a slug to count by, `detail` a sentence for a person.

    Reasons: tombstone, empty, too_large, not_json, not_an_object, missing_entity, bad_entity, missing_time, bad_time,
    absurd_time, missing_type, bad_type, bad_id.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[InvalidEvent], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


def decode_event(raw: bytes | None, fields: Fields, max_bytes: int = 65536) -> Event:
    """The event in a record's raw JSON value. Raises InvalidEvent for whatever else the bytes hold."""
    if raw is None:
        raise InvalidEvent("tombstone", "The record has no value (a tombstone).")
    if len(raw) > max_bytes:
        raise InvalidEvent("too_large", f"The record has {len(raw)} bytes, more than the {max_bytes} allowed.")
    if not raw.strip():
        raise InvalidEvent("empty", "The record is empty.")
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        hint = " (NaN and Infinity are not JSON)" if b"NaN" in raw or b"Infinity" in raw else ""
        raise InvalidEvent("not_json", f"The record is not JSON: {error}{hint}.") from None
    if not isinstance(record, dict):
        raise InvalidEvent("not_an_object", f"The record is JSON but no object: {_shown(record)}.")
    return parse_event(record, fields)


def parse_event(record: Mapping[str, object], fields: Fields) -> Event:
    """The event in an already decoded record. Raises InvalidEvent; fields not named in `fields` are ignored."""
    entity = _name(record.get(fields.entity), "entity", fields.entity)
    time = record.get(fields.time)
    if time is None:
        raise InvalidEvent("missing_time", f"The record has no time (field {fields.time!r}).")
    kind = _name(record.get(fields.type), "type", fields.type)
    identity = record.get(fields.id)
    return Event(
        entity=entity,
        time=to_seconds(time, fields.time_unit),
        type=kind,
        id=None if identity is None else _name(identity, "id", fields.id),
    )


def to_seconds(time: object, unit: str) -> float:
    """Seconds of a foreign time: a number in `unit`, a datetime, or ISO 8601 text (UTC where no zone is named).

    Raises InvalidEvent: bad_time (not a time) or absurd_time (before 1653 or after 5138 as epoch seconds).
    """
    if isinstance(time, str):
        seconds = _iso_seconds(time)
    elif isinstance(time, datetime):
        seconds = _datetime_seconds(time)
    elif isinstance(time, numbers.Real) and not isinstance(time, bool):
        seconds = _number_seconds(time, unit)
    else:
        raise InvalidEvent("bad_time", f"The time is neither a number nor ISO 8601: {_shown(time)}.")
    if not math.isfinite(seconds):
        raise InvalidEvent("bad_time", f"The time is {seconds}.")
    if not EARLIEST <= seconds <= LATEST:
        raise InvalidEvent("absurd_time", f"The time {_shown(time)} is {seconds:.6g} s, no possible time in unit {unit!r}.")
    return seconds


def number_or_text(text: str) -> int | float | str:
    """A time out of text that may hold either (a CSV cell, a command-line option), for `to_seconds`."""
    if "_" not in text:  # Python's own digit grouping, 1_000, is no number elsewhere
        for number in (int, float):
            with suppress(ValueError):
                return number(text)
    return text


def _number_seconds(time: numbers.Real, unit: str) -> float:
    if unit == "iso":
        raise InvalidEvent("bad_time", f"The time is a number where ISO 8601 is expected: {_shown(time)}.")
    scale = UNITS_PER_SECOND[unit]
    try:
        # int / int rounds once and correctly, also for the 19 digits of epoch nanoseconds.
        return int(time) / scale if isinstance(time, numbers.Integral) else float(time) / scale
    except OverflowError:
        return math.inf


def _iso_seconds(time: str) -> float:
    try:
        return _datetime_seconds(datetime.fromisoformat(time.strip()))
    except ValueError:
        raise InvalidEvent("bad_time", f"The time is text but not ISO 8601: {_shown(time)}.") from None


def _datetime_seconds(time: datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _name(value: object, part: str, field: str) -> str:
    """A name out of a foreign record: non-empty text that UTF-8 can carry, or a whole number."""
    if value is None:
        raise InvalidEvent(f"missing_{part}", f"The record has no {part} (field {field!r}).")
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value).bit_length() <= 64:
        return str(int(value))
    if not isinstance(value, str) or not value.strip():
        raise InvalidEvent(f"bad_{part}", f"The {part} is neither text nor a whole number: {_shown(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"bad_{part}", f"The {part} is no valid Unicode text: {_shown(value)}.") from None
    return value


def _shown(value: object) -> str:
    """A value for a message: short, printable, and safe to encode."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"
    text = ascii(value) if isinstance(value, str | numbers.Number | datetime) or value is None else type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
