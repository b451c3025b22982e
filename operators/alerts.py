"""Alerts: from warnings to what is raised and cleared, once for each entity and rule."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from stream_tpp.operators.counters import Counters
from stream_tpp.operators.dead_letters import dead_letter
from stream_tpp.operators.histories import NotCommitted
from stream_tpp.operators.records import STANDS_FOR, Output, Record, Source, encode, entity_key
from stream_tpp.warning.alert import AlertState, Transition, decide
from stream_tpp.warning.rule import Rule

MOST_KEPT = 8


class Mark(NamedTuple):
    """The event (partition, offset in the events topic) up to which all is decided, and the offset at which the warning
    that moved the mark there was `read` from the warnings topic.
    """

    partition: int
    offset: int
    read: int


class Change(NamedTuple):
    """A change of an alert's state by the warning of the event at `offset`, which was `read` from the warnings topic."""

    offset: int
    read: int
    at: float
    raised: bool

    @property
    def transition(self) -> Transition:
        return "raised" if self.raised else "cleared"


MARK = struct.Struct("<iqq")
CHANGE = struct.Struct("<qqd?")


class States(NamedTuple):
    """What the table holds of one entity and rule: the mark, and the latest changes of the alert, oldest first."""

    mark: Mark
    changes: list[Change]

    def pack(self) -> bytes:
        return MARK.pack(*self.mark) + b"".join(CHANGE.pack(*change) for change in self.changes)

    @classmethod
    def unpack(cls, raw: bytes | None) -> States:
        if not raw:
            return cls(Mark(-1, -1, -1), [])
        return cls(Mark(*MARK.unpack_from(raw)), [Change(*fields) for fields in CHANGE.iter_unpack(raw[MARK.size :])])

    def decided(self, warning: Warning) -> bool:
        return warning.partition == self.mark.partition and warning.offset <= self.mark.offset


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning as the warnings topic carries it, as far as alerts need it."""

    id: str
    entity: str
    rule: str
    at: float
    score: float
    partition: int
    offset: int
    stands_for_others: bool = False


class InvalidWarning(Exception):
    """A record that is no warning of ours."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Alerts:
    """The state machine on the warnings topic.

    `table` holds, for each entity and rule, its latest changes. The last one is the whole state, so the table is
    written only when an alert is raised or cleared. A warning of an event at or before that change has been decided
    (the warnings topic repeats a warning when its event is redelivered): it brings forth the change that it made then,
    under the same id, or nothing. For that the latest MOST_KEPT changes are kept, and no uncommitted one is let go.

    A warning that stands for those of earlier events decides for them, too: a worker that comes after a crash may
    conflate less, and write them after all. So the mark is moved then, whether or not the alert changes.
    """

    def __init__(self, table: MutableMapping[bytes, bytes], rules: Iterable[Rule], counters: Counters) -> None:
        self.table = table
        self.rules = {rule.name: rule for rule in rules}
        self.counters = counters

    def receive(self, record: Record, committed: int) -> list[Output]:
        """What to write for a record of the warnings topic: an alert, a dead letter, or nothing.

        Offsets below `committed` are committed. Raises NotCommitted, with nothing changed: commit, then come again.
        """
        try:
            warning = read_warning(record)
            rule = self.rules.get(warning.rule)
            if rule is None:
                raise InvalidWarning("unknown_rule", f"This worker has no rule {warning.rule!r}.")
        except InvalidWarning as refusal:
            self.counters.warnings_in += 1
            return self.refuse(record, refusal.reason, refusal.detail)
        transition = self._transition(warning, rule, record.source, committed)
        self.counters.warnings_in += 1
        if transition is None:
            return []
        if transition == "raised":
            self.counters.alerts_raised += 1
        else:
            self.counters.alerts_cleared += 1
        return [alert_record(warning, transition)]

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        """The dead letter of a record of the warnings topic, counted."""
        self.counters.warnings_refused[reason] += 1
        return [dead_letter(record, reason, detail)]

    def _transition(self, warning: Warning, rule: Rule, source: Source, committed: int) -> Transition | None:
        key = alert_key(source.partition, warning.entity, rule.name)
        states = States.unpack(self.table.get(key))
        if states.decided(warning):
            made = next((change.transition for change in states.changes if change.offset == warning.offset), None)
            if made is not None:
                # Written again: a table kept on disk may hold what its changelog lost in a crash.
                self.table[key] = states.pack()
            return made
        changes = states.changes
        state = AlertState(changes[-1].raised, changes[-1].at) if changes else AlertState()
        state, transition = decide(state, rule, warning.score, warning.at)
        if transition is not None:
            if len(changes) == MOST_KEPT:
                if changes[0].read >= committed:
                    raise NotCommitted(changes[0].read)
                del changes[0]
            changes.append(Change(warning.offset, source.offset, warning.at, state.raised))
        if transition is not None or warning.stands_for_others:
            self.table[key] = States(Mark(warning.partition, warning.offset, source.offset), changes).pack()
        return transition


def states_mark(states: bytes) -> int:
    """How far into the warnings topic whoever wrote the table value `states` had read."""
    return States.unpack(states).mark.read


def alert_key(partition: int, entity: str, rule: str) -> bytes:
    return entity_key(partition, entity) + hashlib.blake2b(rule.encode(), digest_size=8).digest()


def alert_record(warning: Warning, transition: Transition) -> Output:
    record = {
        "id": f"{warning.id}:{transition}",
        "entity": warning.entity,
        "rule": warning.rule,
        "state": transition,
        "at": warning.at,
        "score": warning.score,
        "warning": warning.id,
    }
    return Output("alerts", warning.entity.encode(), encode(record))


def read_warning(record: Record) -> Warning:
    """The warning in a record. Raises InvalidWarning: the topic may hold what others wrote."""
    if record.value is None:
        raise InvalidWarning("tombstone", "The record has no value (a tombstone).")
    try:
        read = orjson.loads(record.value)
        source = read["source"]
        texts = [read["id"], read["entity"], read["rule"]]
        numbers = [float(read["made_at"]), float(read["score"])]
        place = source["partition"], source["offset"]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidWarning("not_a_warning", f"The record is no warning: {type(error).__name__}: {error}.") from None
    if not all(isinstance(text, str) for text in texts) or not all(map(math.isfinite, numbers)):
        raise InvalidWarning("not_a_warning", "The record is no warning: an id or a number in it is none.")
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in place) or place[0] >= 1 << 31:
        raise InvalidWarning("not_a_warning", "The record is no warning: its source is none.")
    id, entity, rule = texts
    at, score = numbers
    return Warning(id, entity, rule, at, score, *place, STANDS_FOR in record.headers)
