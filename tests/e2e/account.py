"""The account of a run, from what lies in its topics and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from stream_tpp.topologies.settings import Settings
from tests.e2e.flights import Input, Place
from tests.e2e.worker import places_of


async def records(settings: Settings, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, each partition from its first offset to its end (Kafka's end offsets are right)."""
    places = places_of(settings, [topic])
    options = settings.kafka.client_options()
    async with AIOKafkaConsumer(**options, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        read: list[ConsumerRecord] = []
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                read.extend(batch)
        return read


@dataclass
class Account:
    """What became of each input. `written` counts the copies of each output by its id; `lost`, `contradictory` and
    `unasked` say, in words, what is missing, what is there twice with different content, and what nobody asked for.
    """

    written: Counter[str] = field(default_factory=Counter)
    contents: dict[str, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    contradictory: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Each output that was owed is there once, as it should be, and no other."""
        return not (self.lost or self.contradictory or self.unasked or self.copies)

    def __str__(self) -> str:
        faults = {"lost": self.lost, "contradictory": self.contradictory, "unasked": self.unasked}
        told = [f"{name}: {len(what)}, such as {', '.join(what[:5])}" for name, what in faults.items() if what]
        return f"{len(self.written)} outputs, {self.copies} copies; " + ("; ".join(told) or "sound")

    @property
    def copies(self) -> int:
        """Outputs beyond the first of their id."""
        return self.written.total() - len(self.written)


async def account(settings: Settings, sent: Mapping[Place, Input]) -> Account:
    """Reads the topics and holds each input against what came of it."""
    topics = settings.topics
    return held(
        settings,
        sent,
        forecasts=await records(settings, topics.forecasts),
        warnings=await records(settings, topics.warnings),
        alerts=await records(settings, topics.alerts),
        letters=await records(settings, topics.dead_letters),
    )


def held(
    settings: Settings,
    sent: Mapping[Place, Input],
    *,
    forecasts: Sequence[ConsumerRecord],
    warnings: Sequence[ConsumerRecord],
    alerts: Sequence[ConsumerRecord],
    letters: Sequence[ConsumerRecord],
) -> Account:
    """The account of these records."""
    done = Account()
    for record in (*forecasts, *warnings, *alerts):
        _enter(done, _parsed(record)["id"], record.key, record.value)
    for record in letters:
        _enter(done, _letter_id(record), record.key, record.value)
    owed = _owed(settings, sent)
    done.lost += sorted(owed - done.written.keys())
    alert_ids = {_parsed(record)["id"] for record in alerts}
    done.unasked += sorted(done.written.keys() - owed - alert_ids)
    _hold_letters(done, letters, sent, settings.topics.events)
    _hold_alerts(done, alerts, warnings)
    return done


def _enter(done: Account, id: str, key: bytes | None, value: bytes | None) -> None:
    if done.contents.setdefault(id, (key, value)) != (key, value):
        done.contradictory.append(id)
    done.written[id] += 1


def _owed(settings: Settings, sent: Mapping[Place, Input]) -> set[str]:
    topic = settings.topics.events
    owed: set[str] = set()
    for place, one in sent.items():
        if one.reason is not None:
            owed.add(f"dead letter of {place.partition}:{place.offset}")
        elif not one.repeat:
            forecast = f"{one.entity}:{topic}:{place.partition}:{place.offset}"
            owed |= {forecast, *(f"{forecast}:{rule.name}" for rule in settings.rules)}
    return owed


def _letter_id(record: ConsumerRecord) -> str:
    headers = dict(record.headers)
    return f"dead letter of {headers['partition'].decode()}:{headers['offset'].decode()}"


def _hold_letters(done: Account, letters: Iterable[ConsumerRecord], sent: Mapping[Place, Input], topic: str) -> None:
    """A dead letter says why, and holds the bytes that were sent."""
    for record in letters:
        headers = {name: value.decode() for name, value in record.headers}
        one = sent.get(Place(int(headers["partition"]), int(headers["offset"])))
        if one is None or headers["topic"] != topic:
            done.unasked.append(f"{_letter_id(record)} of {headers['topic']}, where nothing was sent")
            continue
        # No client writes a record that has no value on purpose; the reason tells a tombstone from an empty record.
        value = (one.value or b"") if one.key is None else one.value
        if headers["reason"] != one.reason or record.key != one.key or record.value != value:
            done.contradictory.append(f"{_letter_id(record)}: {headers['reason']}, sent was {one.reason}")
        if not headers["detail"] or float(headers["timestamp"]) <= 0:
            done.contradictory.append(f"{_letter_id(record)} lacks detail or timestamp")


def _hold_alerts(done: Account, alerts: Sequence[ConsumerRecord], warnings: Iterable[ConsumerRecord]) -> None:
    """An alert names a warning that is there, of its entity and rule; for each entity and rule, raised and cleared alternate."""
    known = {warning["id"]: warning for warning in map(_parsed, warnings)}
    seen: set[str] = set()
    standing: dict[tuple[str, str], str] = {}
    for record in alerts:
        alert = _parsed(record)
        if alert["id"] in seen:
            continue
        seen.add(alert["id"])
        warning = known.get(alert["warning"])
        if warning is None or (warning["entity"], warning["rule"]) != (alert["entity"], alert["rule"]):
            done.unasked.append(f"alert {alert['id']} of no warning")
        whose = (alert["entity"], alert["rule"])
        if standing.get(whose, "cleared") == alert["state"]:
            done.contradictory.append(f"alert {alert['id']} was {alert['state']} already")
        standing[whose] = alert["state"]


def _parsed(record: ConsumerRecord) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(record.value)
    return parsed
