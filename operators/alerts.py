"""Alerts: from warnings to what is raised and cleared, once for each entity and rule."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import orjson

from stream_tpp.operators.counters import Counters
from stream_tpp.operators.dead_letters import dead_letter
from stream_tpp.operators.histories import NotCommitted, partition_of
from stream_tpp.operators.lapses import Lapses
from stream_tpp.operators.records import STANDS_FOR, Output, Record, Source, encode, entity_key, warning_id
from stream_tpp.warning.alert import AlertState, Transition, decide
from stream_tpp.warning.rule import Rule

MOST_KEPT = 8


class Mark(NamedTuple):
    """The event (partition, offset in the events topic) up to which all is decided, and the offset at which the warning
    that moved the mark there was `read` from the warnings topic. An alert that stands lapses at `until`; its last `score`.
    """

    partition: int
    offset: int
    read: int
    until: float
    score: float


class Kind(IntEnum):
    """What became of an alert: cleared by a warning, raised by one, or lapsed for want of one."""

    CLEARED = 0
    RAISED = 1
    LAPSED = 2


class Change(NamedTuple):
    """A change of an alert's state `at` a time, at the warning that was `read` from the warnings topic. `offset` and `score` are
    those of the warning that made it; for one that lapsed, of the last before.
    """

    offset: int
    read: int
    at: float
    score: float
    kind: int


MARK = struct.Struct("<iqqddB")
CHANGE = struct.Struct("<qqddB")


class States(NamedTuple):
    """What the table holds of one entity and rule: the mark, the latest changes of the alert, oldest first, and whose it is."""

    mark: Mark
    changes: tuple[Change, ...]
    entity: str
    topic: str

    def pack(self) -> bytes:
        changes = b"".join(CHANGE.pack(*change) for change in self.changes)
        return MARK.pack(*self.mark, len(self.changes)) + changes + encode([self.entity, self.topic])

    @classmethod
    def unpack(cls, raw: bytes) -> States:
        *mark, count = MARK.unpack_from(raw)
        end = MARK.size + count * CHANGE.size
        changes = CHANGE.iter_unpack(memoryview(raw)[MARK.size : end])
        return cls(Mark(*mark), tuple(Change(*fields) for fields in changes), *orjson.loads(raw[end:]))

    @property
    def until(self) -> float | None:
        """When the alert lapses, None where none stands."""
        return self.mark.until if self.state.raised else None

    @property
    def state(self) -> AlertState:
        return AlertState(self.changes[-1].kind == Kind.RAISED, self.changes[-1].at) if self.changes else AlertState()

    def decided(self, warning: Warning) -> bool:
        return warning.partition == self.mark.partition and warning.offset <= self.mark.offset

    def changed(self, change: Change, committed: int) -> States:
        """With one more change; of those that are committed, the oldest may go. Raises NotCommitted."""
        kept = self.changes
        if len(kept) == MOST_KEPT:
            if kept[0].read >= committed:
                raise NotCommitted(kept[0].read)
            kept = kept[1:]
        return self._replace(changes=(*kept, change))

    def lapsed(self, read: int, committed: int) -> States:
        """The alert lapsed at the warning that was read there. Raises NotCommitted."""
        change = Change(self.mark.offset, read, self.mark.until, self.mark.score, Kind.LAPSED)
        return self.changed(change, committed)._replace(mark=self.mark._replace(read=read))


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning as the warnings topic carries it, as far as alerts need it; of the event at `offset` of a topic's `partition`."""

    id: str
    entity: str
    rule: str
    at: float
    score: float
    topic: str
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

    `table` holds, for each entity and rule, how far all is decided, and the latest changes. A warning of an event at or
    before that has been decided (the warnings topic repeats a warning when its event is redelivered): it brings forth the
    change that it made then, under the same id, or nothing. For that the latest MOST_KEPT changes are kept, and no
    uncommitted one is let go.

    A warning that stands for those of earlier events decides for them, too: a worker that comes after a crash may
    conflate less, and write them after all. So the mark is moved then, whether or not the alert changes.

    A standing alert says that an alarm may come within the rule's horizon after the entity's latest warning. It lapses at the
    first warning in its partition, of whatever entity, that was made later than that. What lapses is decided by the order of
    the warnings topic alone: of what the table holds, a warning that is read again lapses what it lapsed the first time, and
    never what came after it.
    """

    def __init__(self, table: MutableMapping[bytes, bytes], rules: Iterable[Rule], counters: Counters) -> None:
        self.table = table
        self.rules = {rule.name: rule for rule in rules}
        self.counters = counters
        self._named = {_named(name): name for name in self.rules}
        self._lapses: dict[int, Lapses] = {}

    def receive(self, record: Record, committed: int) -> list[Output]:
        """What to write for a record of the warnings topic: alerts, a dead letter, or nothing.

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
        source = record.source
        lapses = self._lapses_of(source.partition, committed)
        fresh: dict[bytes, States] = {}
        alerts = self._lapse(lapses, warning.at, source.offset, committed, fresh)
        alerts += self._decide(warning, rule, source, committed, fresh)
        # Nothing is refused from here on.
        for key, states in fresh.items():
            self.table[key] = states.pack()
            lapses.put(key, states.until)
        lapses.lapsed_at.pop(source.offset, None)
        self.counters.warnings_in += 1
        self.counters.alerts_raised += sum(transition == "raised" for transition, _ in alerts)
        self.counters.alerts_cleared += sum(transition == "cleared" for transition, _ in alerts)
        return [alert for _, alert in alerts]

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        """The dead letter of a record of the warnings topic, counted."""
        self.counters.warnings_refused[reason] += 1
        return [dead_letter(record, reason, detail)]

    def forget(self) -> None:
        """After a rebalance the table may hold what other workers wrote."""
        self._lapses.clear()

    def _lapses_of(self, partition: int, committed: int) -> Lapses:
        lapses = self._lapses.get(partition)
        if lapses is None:
            lapses = self._lapses[partition] = Lapses()
            for key, value in self.table.items():
                if partition_of(key) == partition and key[-NAMED:] in self._named:
                    states = States.unpack(value)
                    lapses.put(key, states.until)
                    for change in states.changes:
                        if change.kind == Kind.LAPSED and change.read >= committed:
                            lapses.lapsed_at[change.read].append(key)
        return lapses

    def _lapse(
        self, lapses: Lapses, now: float, read: int, committed: int, fresh: dict[bytes, States]
    ) -> list[tuple[Transition, Output]]:
        """The alerts that lapse at the warning that was read there, or lapsed at it the first time."""
        found: list[tuple[Transition, Output]] = []
        for key in lapses.lapsed_at.get(read, ()):
            # Written again: a table kept on disk may hold what its changelog lost in a crash.
            states = fresh[key] = States.unpack(self.table[key])
            (change,) = (change for change in states.changes if (change.kind, change.read) == (Kind.LAPSED, read))
            found.append(("cleared", self._lapsed_record(key, states, change)))
        for key in lapses.due(now):
            states = States.unpack(self.table[key])
            if states.mark.read < read:
                states = fresh[key] = states.lapsed(read, committed)
                found.append(("cleared", self._lapsed_record(key, states, states.changes[-1])))
        return found

    def _lapsed_record(self, key: bytes, states: States, change: Change) -> Output:
        source = Source(states.topic, states.mark.partition, change.offset)
        rule = self._named[key[-NAMED:]]
        warning = warning_id(states.entity, source, rule)
        return alert_record(f"{warning}:lapsed", states.entity, rule, "cleared", change.at, change.score, warning)

    def _decide(
        self, warning: Warning, rule: Rule, source: Source, committed: int, fresh: dict[bytes, States]
    ) -> list[tuple[Transition, Output]]:
        """The change that the warning makes, or made the first time."""
        key = alert_key(source.partition, warning.entity, rule.name)
        states = fresh.get(key) or self._states(key, warning)
        if states.decided(warning):
            made = [change for change in states.changes if change.offset == warning.offset and change.kind != Kind.LAPSED]
            if not made:
                return []
            fresh[key] = states
            return [_transition(warning, made[0].kind)]
        state, transition = decide(states.state, rule, warning.score, warning.at)
        if transition is None and not state.raised and not warning.stands_for_others:
            return []
        mark = Mark(warning.partition, warning.offset, source.offset, warning.at + rule.horizon, warning.score)
        states = states._replace(mark=mark)
        if transition is None:
            fresh[key] = states
            return []
        change = Change(warning.offset, source.offset, warning.at, warning.score, Kind.RAISED if state.raised else Kind.CLEARED)
        fresh[key] = states.changed(change, committed)
        return [_transition(warning, change.kind)]

    def _states(self, key: bytes, warning: Warning) -> States:
        raw = self.table.get(key)
        return States.unpack(raw) if raw else States(Mark(-1, -1, -1, 0.0, 0.0), (), warning.entity, warning.topic)


def states_mark(states: bytes) -> int:
    """How far into the warnings topic whoever wrote the table value `states` had read."""
    return States.unpack(states).mark.read


NAMED = 8


def alert_key(partition: int, entity: str, rule: str) -> bytes:
    return entity_key(partition, entity) + _named(rule)


def _named(rule: str) -> bytes:
    return hashlib.blake2b(rule.encode(), digest_size=NAMED).digest()


def alert_record(id: str, entity: str, rule: str, state: Transition, at: float, score: float, warning: str) -> Output:
    record = {"id": id, "entity": entity, "rule": rule, "state": state, "at": at, "score": score, "warning": warning}
    return Output("alerts", entity.encode(), encode(record))


def _transition(warning: Warning, kind: int) -> tuple[Transition, Output]:
    state: Transition = "raised" if kind == Kind.RAISED else "cleared"
    id = f"{warning.id}:{state}"
    return state, alert_record(id, warning.entity, warning.rule, state, warning.at, warning.score, warning.id)


def read_warning(record: Record) -> Warning:
    """The warning in a record. Raises InvalidWarning: the topic may hold what others wrote."""
    if record.value is None:
        raise InvalidWarning("tombstone", "The record has no value (a tombstone).")
    try:
        read = orjson.loads(record.value)
        source = read["source"]
        texts = [read["id"], read["entity"], read["rule"]]
        numbers = [float(read["made_at"]), float(read["score"])]
        texts.append(source["topic"])
        place = source["partition"], source["offset"]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidWarning("not_a_warning", f"The record is no warning: {type(error).__name__}: {error}.") from None
    if not all(isinstance(text, str) for text in texts) or not all(map(math.isfinite, numbers)):
        raise InvalidWarning("not_a_warning", "The record is no warning: an id or a number in it is none.")
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in place) or place[0] >= 1 << 31:
        raise InvalidWarning("not_a_warning", "The record is no warning: its source is none.")
    id, entity, rule, topic = texts
    at, score = numbers
    return Warning(id, entity, rule, at, score, topic, *place, STANDS_FOR in record.headers)
