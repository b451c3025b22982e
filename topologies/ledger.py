"""The books of an audit: what the records of a topology's topics say happened to each event.

What is owed: for each event either a forecast, under the id made of its entity and place, and one warning a rule; or a
dead letter that holds its bytes; or nothing, where an event of the same entity and id came before (a repeat), or where
the forecast of a later event of the entity says that it stands for this one (conflated). For the warnings, in their
order: each change of an alert that the rules demand, and the end of each that stands when a warning in its partition is made
more than the rule's horizon after the latest of its own. What is owed and missing is lost; what is there again, byte for
byte, is duplicated; what another model made again, of an event delivered again, is remade; what is neither owed nor the
same as before is contradictory.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import orjson

from stream_tpp.event import Fields, InvalidEvent, decode_event
from stream_tpp.warning.alert import AlertState, decide
from stream_tpp.warning.rule import Rule

Role = Literal["events", "forecasts", "warnings", "alerts", "dead_letters"]
ROLES: tuple[Role, ...] = get_args(Role)

MOST_FAULTS = 20

Digest = bytes


class Place(NamedTuple):
    """Where an event lies in the events topic."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a topic as the auditor reads it; `timestamp` is Kafka's, in seconds."""

    role: Role
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """What the topics hold. `lost`, `duplicated`, `remade` and `contradictory` count records; `faults` says which, the first
    few.

    `processed` are events with a forecast, repeats, and conflated ones. `latencies`: of each event with a forecast, when it
    was written (seconds) and the seconds from then to the forecast, both as stamped in Kafka; in order.
    """

    events_in: int
    processed: int
    repeats: int
    conflated: int
    dead_lettered: int
    lost: int
    duplicated: int
    remade: int
    contradictory: int
    forecasts: int
    warnings: int
    alerts_raised: int
    alerts_cleared: int
    reasons: Mapping[str, int]
    latencies: Sequence[tuple[float, float]]
    faults: Sequence[str]

    @property
    def sound(self) -> bool:
        """Every event is accounted for once, and nothing else was written."""
        whole = self.events_in == self.processed + self.dead_lettered
        return whole and not (self.lost or self.duplicated or self.remade or self.contradictory)


def latency(account: Audit, quantile: float, since: float = 0.0) -> float:
    """The quantile (nearest rank) of the latencies of events written from `since` on, in seconds; NaN where there are none."""
    ranked = sorted(waited for written, waited in account.latencies if written >= since)
    return ranked[min(len(ranked) - 1, int(quantile * len(ranked)))] if ranked else math.nan


class Ledger:
    """The books: takes entries of the topics in any order between topics, in order of offset within a partition."""

    def __init__(self, events_topic: str, rules: Iterable[Rule], fields: Fields | None = None) -> None:
        self.topic = events_topic
        self.rules = {rule.name: rule for rule in rules}
        self.fields = fields or Fields()
        self.events: dict[Place, _Event] = {}
        self.forecasts: dict[Place, _Output] = {}
        self.dead_letters: dict[Place, _DeadLetter] = {}
        self.warnings: dict[str, _Warning] = {}
        self.alerts: dict[tuple[str, str], _Output] = {}
        self.reasons: Counter[str] = Counter()
        # Of events that a forecast stands for: the place of that forecast's event.
        self.conflated: dict[Place, Place] = {}
        self._seen: dict[tuple[int, str, str], Place] = {}
        self._standing: dict[tuple[int, str, str], _Standing] = defaultdict(_Standing)
        # Of each partition of the warnings topic: when alerts lapse, some of which do not stand any more, or stand for longer.
        self._lapses: dict[int, list[tuple[float, tuple[int, str, str]]]] = defaultdict(list)
        self._owed_alerts: dict[tuple[str, str], str] = {}
        self._duplicated = 0
        self._remade = 0
        self._contradictory = 0
        self._faults: list[str] = []

    def take(self, entry: Entry) -> None:
        """Book one record."""
        match entry.role:
            case "events":
                self._event(entry)
            case "dead_letters":
                self._dead_letter(entry)
            case _:
                self._output(entry)

    def settled(self, events: int) -> bool:
        """Whether so many events were read and nothing is owed for them any more."""
        done = len(self.forecasts) + len(self.dead_letters) + len(self.conflated)
        done += sum(event.repeat_of is not None for event in self.events.values())
        return len(self.events) >= events and done >= events and self.audit().lost == 0

    def audit(self) -> Audit:
        """The account of what was taken so far."""
        lost, contradictory, faults = 0, self._contradictory, []
        for fault in self._missing():
            lost += 1
            faults.append(f"lost: {fault}")
        for fault in self._strays():
            contradictory += 1
            faults.append(f"contradictory: {fault}")
        repeats = [place for place, event in self.events.items() if self._repeats(place, event)]
        conflated = [place for place in self.conflated if self._conflated(place)]
        states = Counter(state for _, state in self.alerts)
        return Audit(
            events_in=len(self.events),
            processed=sum(place in self.events for place in self.forecasts) + len(repeats) + len(conflated),
            repeats=len(repeats),
            conflated=len(conflated),
            dead_lettered=sum(place in self.events for place in self.dead_letters),
            lost=lost,
            duplicated=self._duplicated,
            remade=self._remade,
            contradictory=contradictory,
            forecasts=len(self.forecasts),
            warnings=len(self.warnings),
            alerts_raised=states["raised"],
            alerts_cleared=states["cleared"],
            reasons=dict(self.reasons),
            latencies=sorted(self._latencies()),
            # The grave ones first: of those that come again there may be many.
            faults=[*faults, *sorted(self._faults)][:MOST_FAULTS],
        )

    def _event(self, entry: Entry) -> None:
        place = Place(entry.partition, entry.offset)
        entity = repeat_of = None
        try:
            event = decode_event(entry.value, self.fields)
        except InvalidEvent:
            pass
        else:
            entity = event.entity
            if event.id is not None:
                first = self._seen.setdefault((entry.partition, entity, event.id), place)
                repeat_of = None if first == place else first
        self.events[place] = _Event(entity, repeat_of, entry.timestamp, _digest(entry.key), _digest(entry.value))

    def _dead_letter(self, entry: Entry) -> None:
        headers = {name: value.decode(errors="replace") for name, value in entry.headers.items()}
        if headers.get("topic") != self.topic:
            # Records of the warnings topic that are no warnings of ours have dead letters too.
            return
        try:
            place = Place(int(headers["partition"]), int(headers["offset"]))
        except (KeyError, ValueError) as error:
            self._contradicts(f"record {entry.offset} of partition {entry.partition} of dead_letters names no event: {error!r}")
            return
        letter = _DeadLetter(_digest(entry.key), None if "truncated" in headers else _digest(entry.value))
        if self._is_new(self.dead_letters, place, letter, f"the dead letter of {_at(place)}"):
            self.reasons[headers.get("reason", "")] += 1

    def _output(self, entry: Entry) -> None:
        try:
            record = orjson.loads(entry.value or b"")
            output = _Output(record["id"], record["entity"], entry.timestamp, _digest(entry.value), record.get("model"))
            if entry.key != output.entity.encode():
                raise ValueError(f"its key is {entry.key!r}")
            if entry.role == "forecasts":
                self._forecast(record, output, _stands_for(entry))
            elif entry.role == "warnings":
                self._warning(record, output, _stands_for(entry), entry.partition)
            else:
                self._is_new(self.alerts, (record["warning"], record["state"]), output, f"alert {output.id}")
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            self._contradicts(
                f"record {entry.offset} of partition {entry.partition} of {entry.role} is no such record: {error!r}"
            )

    def _forecast(self, record: Mapping[str, Any], output: _Output, stands_for: Sequence[int]) -> None:
        place = Place(record["source"]["partition"], record["source"]["offset"])
        if output.id != f"{output.entity}:{self.topic}:{place.partition}:{place.offset}":
            raise ValueError(f"its id is {output.id!r}")
        self._is_new(self.forecasts, place, output, f"forecast {output.id}")
        # A copy may stand for others than the first: after a crash another worker may have been behind.
        for offset in stands_for:
            self.conflated.setdefault(Place(place.partition, offset), place)

    def _warning(self, record: Mapping[str, Any], output: _Output, stands_for: Sequence[int], partition: int) -> None:
        source, rule = record["source"], record["rule"]
        place = Place(source["partition"], source["offset"])
        if output.id != f"{output.entity}:{self.topic}:{place.partition}:{place.offset}:{rule}":
            raise ValueError(f"its id is {output.id!r}")
        warning = _Warning(output.id, output.entity, output.timestamp, output.digest, output.model, place, rule)
        self._is_new(self.warnings, output.id, warning, f"warning {output.id}")
        if rule in self.rules:
            at = float(record["made_at"])
            self._expect_lapses(partition, at)
            self._expect_alert(warning, float(record["score"]), at, bool(stands_for), partition)

    def _expect_lapses(self, partition: int, now: float) -> None:
        lapses = self._lapses[partition]
        while lapses and lapses[0][0] < now:
            until, key = heapq.heappop(lapses)
            standing = self._standing[key]
            if standing.state.raised and standing.until == until:
                standing.state = AlertState(False, until)
                self._owed_alerts[standing.warning, "cleared"] = key[1]

    def _expect_alert(self, warning: _Warning, score: float, at: float, stands_for_others: bool, partition: int) -> None:
        key = warning.place.partition, warning.entity, warning.rule
        standing, rule = self._standing[key], self.rules[warning.rule]
        if warning.place.offset <= standing.decided:
            return
        standing.state, transition = decide(standing.state, rule, score, at)
        if transition is not None:
            self._owed_alerts[warning.id, transition] = warning.entity
        if standing.state.raised:
            standing.warning, standing.until = warning.id, at + rule.horizon
            heapq.heappush(self._lapses[partition], (standing.until, key))
        # Otherwise a repeat changes nothing, and an event that comes late for the first time is none that was stood for.
        if transition is not None or standing.state.raised or stands_for_others:
            standing.decided = warning.place.offset

    def _is_new(self, book: dict[Any, Any], key: Any, output: Any, what: str) -> bool:
        """Enter the output, and say whether it is the first of its key; what comes again is duplicated or contradictory."""
        first = book.setdefault(key, output)
        if first is output:
            return True
        if first.digest == output.digest:
            self._duplicated += 1
            self._faults.append(f"duplicated: {what}")
        elif first.model != output.model:
            self._remade += 1
            self._faults.append(f"remade: {what}, by another model")
        else:
            self._contradicts(f"{what} is there with other content")
        return False

    def _contradicts(self, fault: str) -> None:
        self._contradictory += 1
        self._faults.append(f"contradictory: {fault}")

    def _missing(self) -> Iterator[str]:
        for place, event in self.events.items():
            if place in self.conflated:
                continue
            if place in self.forecasts:
                for rule in self.rules:
                    warning = f"{self.forecasts[place].id}:{rule}"
                    if warning not in self.warnings:
                        yield f"warning {warning}"
            elif place not in self.dead_letters and not self._repeats(place, event):
                yield f"{_at(place)} has neither forecast nor dead letter"
        for warning, state in self._owed_alerts.keys() - self.alerts.keys():
            yield f"alert {state} by warning {warning}"

    def _strays(self) -> Iterator[str]:
        """Outputs that nothing asked for, and those at odds with their event."""
        for place, forecast in self.forecasts.items():
            if place not in self.events or self.events[place].entity != forecast.entity:
                yield f"forecast {forecast.id} is not of the event at its source"
            if place in self.dead_letters:
                yield f"{_at(place)} has both a forecast and a dead letter"
        for place, newer in self.conflated.items():
            event, by = self.events.get(place), self.events.get(newer)
            if event is None or by is None or event.entity != by.entity or place >= newer:
                yield f"forecast {self.forecasts[newer].id} stands for {_at(place)}, which is no earlier one of its entity"
        for place, letter in self.dead_letters.items():
            event = self.events.get(place)
            if event is None or letter.key != event.key or letter.value not in (None, event.value):
                yield f"the dead letter of {_at(place)} does not hold its bytes"
        for warning in self.warnings.values():
            if warning.place not in self.forecasts or (self.rules and warning.rule not in self.rules):
                yield f"warning {warning.id} belongs to no forecast"
        if self.rules:
            for key in self.alerts.keys() - self._owed_alerts.keys():
                yield f"alert {self.alerts[key].id} is not what its warnings demand"

    def _conflated(self, place: Place) -> bool:
        """Whether the event has no forecast or dead letter of its own; after a crash it may have, besides."""
        return place in self.events and place not in self.forecasts and place not in self.dead_letters

    def _repeats(self, place: Place, event: _Event) -> bool:
        """Whether the event is a repeat that was passed over; a window forgets, so it may have its own forecast instead."""
        return (
            event.repeat_of is not None
            and place not in self.forecasts
            and place not in self.dead_letters
            and place not in self.conflated
            and (event.repeat_of in self.forecasts or event.repeat_of in self.conflated)
        )

    def _latencies(self) -> Iterator[tuple[float, float]]:
        for place, event in self.events.items():
            if place in self.forecasts:
                yield event.timestamp, self.forecasts[place].timestamp - event.timestamp


@dataclass(frozen=True, slots=True)
class _Event:
    entity: str | None
    repeat_of: Place | None
    timestamp: float
    key: Digest
    value: Digest


@dataclass(frozen=True, slots=True)
class _Output:
    id: str
    entity: str
    timestamp: float
    digest: Digest
    model: str | None


@dataclass(frozen=True, slots=True)
class _Warning(_Output):
    place: Place
    rule: str


@dataclass(slots=True)
class _Standing:
    """An alert of one entity and rule, and the offset of the event up to which it is decided; its latest warning, and until
    when it stands with no other.
    """

    state: AlertState = AlertState()  # noqa: RUF009
    decided: int = -1
    warning: str = ""
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    key: Digest
    value: Digest | None
    model: None = None

    @property
    def digest(self) -> tuple[Digest, Digest | None]:
        return self.key, self.value


def _stands_for(entry: Entry) -> list[int]:
    named = entry.headers.get("stands_for")
    return [int(offset) for offset in named.split(b",")] if named else []


def _digest(value: bytes | None) -> Digest:
    return b"" if value is None else hashlib.blake2b(value, digest_size=12).digest()


def _at(place: Place) -> str:
    return f"the event at offset {place.offset} of partition {place.partition}"
