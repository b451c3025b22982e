"""Ingest: from the bytes of a record to an event whose type the model knows."""

from __future__ import annotations

from collections.abc import Sequence

from stream_tpp.event import Event, Fields, InvalidEvent, decode_event
from stream_tpp.history import MOST_TYPES
from stream_tpp.operators.records import Record

LONGEST_ENTITY = 16_384


class Ingest:
    """Reads events. `types` is the model's vocabulary; `ahead` how far (seconds) an event may be dated after its record
    was written, None for any: one event from a clock that runs ahead makes all later ones of its entity too late.
    """

    def __init__(
        self, types: Sequence[str], fields: Fields | None = None, max_bytes: int = 65536, ahead: float | None = None
    ) -> None:
        if len(types) > MOST_TYPES:
            raise ValueError(f"{len(types)} types of events, more than the {MOST_TYPES} that a slot can tell apart")
        self.fields = fields or Fields()
        self.max_bytes = max_bytes
        self.ahead = ahead
        self._types = {name: index for index, name in enumerate(types)}

    def read(self, record: Record) -> tuple[Event, int]:
        """The event in the record, and its type as an index into the vocabulary. Raises InvalidEvent."""
        event = decode_event(record.value, self.fields, self.max_bytes)
        if len(event.entity.encode()) > LONGEST_ENTITY:
            raise InvalidEvent("oversized_entity", f"The entity's name has more than {LONGEST_ENTITY} bytes.")
        if self.ahead is not None and event.time > record.timestamp + self.ahead:
            raise InvalidEvent(
                "absurd_time",
                f"The time {event.time} is {event.time - record.timestamp:.0f} s after the record was written.",
            )
        try:
            return event, self._types[event.type]
        except KeyError:
            raise InvalidEvent("unknown_type", f"The model knows no events of type {event.type!r}.") from None
