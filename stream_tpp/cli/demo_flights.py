"""What the demo replays: real flights that its model has not learned from, and a few records that are no flights at all."""

from __future__ import annotations

import json
import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.warning.rule import Rule

DAY = 86_400.0
HOUR = 3_600.0

DAYS = 14
AIRCRAFT = 200
FORECAST_HORIZON = 3 * DAY
BUSY_OVER = 90 * DAY
WARM_UP = 5 * DAY

ALARM = frozenset({"very_late", "cancelled"})
QUESTION = "a very late or cancelled departure"
# Chosen on 1 to 28 October, before the flights that are judged. There 24 % of the alerts raised at a score of 20 % came true
# (5 % of all forecasts did), and 17 % of what happened was foreseen; at 15 % it was 15 % and 25 %, at 25 % 37 % and 10 %.
RULE = Rule(alarm=ALARM, horizon=DAY, threshold=0.2, name="late-or-cancelled")


@dataclass(frozen=True)
class Flights:
    """Departures of some aircraft: a warm-up, so that histories are not empty, then what is judged.

    The judged days begin at `since`, where the model's learning ended, and end at `until`; `known` is all that happened
    to these aircraft up to a forecast's horizon later, so that the last alerts and forecasts can be judged too.
    """

    warm_up: Sequence[Event]
    judged: Sequence[Event]
    known: Sequence[Event]
    since: float
    until: float
    aircraft: int

    @property
    def total(self) -> int:
        return len(self.warm_up) + len(self.judged)

    @property
    def days(self) -> int:
        return round((self.until - self.since) / DAY)

    def first(self, days: int) -> Flights:
        """The same, with no more than so many judged days."""
        until = min(self.until, self.since + days * DAY)
        judged = [event for event in self.judged if event.time < until]
        known = [event for event in self.known if event.time <= until + FORECAST_HORIZON]
        return replace(self, judged=judged, known=known, until=until)


def choose(events: Sequence[Event], since: float, days: int) -> Flights:
    """The aircraft with the most departures in the months before `since`: those whose histories say most."""
    end = since + days * DAY
    before = Counter(event.entity for event in events if since - BUSY_OVER <= event.time < since)
    fleet = {entity for entity, _ in sorted(before.items(), key=lambda item: (-item[1], item[0]))[:AIRCRAFT]}
    known = [event for event in events if event.entity in fleet and since - WARM_UP <= event.time <= end + FORECAST_HORIZON]
    warm_up = [event for event in known if event.time < since]
    judged = [event for event in known if since <= event.time < end]
    return Flights(warm_up, judged, known, since, end, len(fleet))


def learned_until(folder: Path) -> float:
    """The time (seconds) from which on the model has seen nothing. Raises StreamTppError where its folder doesn't say."""
    try:
        command = shlex.split(json.loads((folder / "model.json").read_text())["facts"]["command"])
        until = command[command.index("--until") + 1]
        return datetime.fromisoformat(until).replace(tzinfo=UTC).timestamp()
    except OSError as error:
        raise StreamTppError(f"There is no model in {folder} ({error.strerror}): install stream-tpp again.") from error
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise StreamTppError(
            f"The model in {folder} does not say until when it learned: fit it with `stream-tpp fit flights --until DATE`."
        ) from error


def busiest(events: Sequence[Event], span: float = 6 * HOUR) -> float:
    """Events a second of their own time, in the span of time that has the most."""
    times = sorted(event.time for event in events)
    return max((number - bisect_left(times, time - span) + 1 for number, time in enumerate(times)), default=0) / span


def bad_records(entity: str, at: float) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values as broken producers write them; each has to become a dead letter."""

    def record(**changes: object) -> bytes:
        return json.dumps({"entity": entity, "time": at, "type": "on_time"} | changes).encode()

    key = entity.encode()
    return [
        (key, b'{"entity": "' + key),
        (key, b""),
        (key, None),
        (None, json.dumps({"time": at, "type": "late"}).encode()),
        (key, json.dumps({"entity": entity, "type": "late"}).encode()),
        (key, record(time=float("nan"))),
        (key, record(time="tomorrow, perhaps")),
        (key, record(time=1e300)),
        (key, record(type="diverted to Boston")),
        (key, record(time=at - 40 * DAY)),
        (key, record(remark="x" * 900_000)),
    ]
