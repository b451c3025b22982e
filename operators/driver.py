"""A driver for tests and backtests: the operators of the early-warning topology, with no broker, thread or clock.

Records in, records out, table writes in between; the clock, commits and crashes are the caller's. What a worker does
between topics is done here in one call: the outputs of `send` lie in `outputs`, warnings among them having gone on to
the alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field

from stream_tpp.event import Fields
from stream_tpp.operators.alerts import Alerts
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.forecasting import Forecasting, Question
from stream_tpp.operators.histories import Histories, NotCommitted
from stream_tpp.operators.ingest import Ingest
from stream_tpp.operators.line import Line
from stream_tpp.operators.records import Channel, Output, Record, Source
from stream_tpp.operators.sampler import forecast_each
from stream_tpp.warning.rule import Rule

EVENTS, WARNINGS = "events", "warnings"


class Table(MutableMapping[bytes, bytes]):
    """A table whose every write is also in `changelog`: the pairs that Kafka would hold, oldest first."""

    def __init__(self, changelog: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.changelog = list(changelog)
        self._values = dict(self.changelog)

    def __getitem__(self, key: bytes) -> bytes:
        return self._values[key]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.changelog.append((key, value))
        self._values[key] = value

    def __delitem__(self, key: bytes) -> None:
        raise TypeError("no operator deletes from a table")

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass
class Driver:
    """The early-warning topology over `forecaster` and `rules`.

    `now` is the clock: Kafka's timestamp of what is sent. Each event is committed when it is done, unless `commits` is
    False: then `crash` brings back all since the last `commit`, as a worker that is killed and started anew would read
    them. The engine is asked about `batch` events at once, and lets `waiting` more wait; with `conflate` these are
    conflated, as a worker does that is behind.
    """

    forecaster: Forecaster
    rules: Iterable[Rule] = ()
    fields: Fields = field(default_factory=Fields)
    window: int | None = None
    slack: int = 256
    reorder: int = 64
    grace: float = 86_400.0
    ahead: float | None = None
    most_rings: int = 10_000
    commits: bool = True
    batch: int = 1
    waiting: int = 0
    conflate: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.outputs: list[Output] = []
        self._next: dict[int, int] = {}
        self._uncommitted: list[Record] = []
        self._warnings = 0
        self._start_worker(Table(), Table())

    def send(self, value: bytes | None, key: bytes | None = None, partition: int = 0) -> list[Output]:
        """Put a record on the events topic and let it run through; the outputs that came of it."""
        offset = self._next.get(partition, 0)
        self._next[partition] = offset + 1
        record = Record(Source(EVENTS, partition, offset), self.now, key, value)
        self._uncommitted.append(record)
        return self._run(record)

    def flush(self) -> list[Output]:
        """Have the engine answer what still waits for a batch to fill."""
        before = len(self.outputs)
        while len(self._line):
            self._answer_batch()
        return self.outputs[before:]

    def commit(self, but: Record | None = None) -> None:
        """Commit all that was sent (but for one that is in hand): none of it is delivered again."""
        self.flush()
        self._uncommitted = [record for record in self._uncommitted if record is but]

    def crash(self) -> list[Output]:
        """Kill the worker, with whatever waits for the engine, and start another: its tables come from the changelogs,
        its events from the last commit on. Returns the outputs of the events that are delivered again.
        """
        self._start_worker(Table(self.histories_table.changelog), Table(self.alerts_table.changelog))
        before = len(self.outputs)
        for record in list(self._uncommitted):
            self._run(record)
        self.flush()
        return self.outputs[before:]

    def of(self, channel: Channel) -> list[Output]:
        return [output for output in self.outputs if output.channel == channel]

    def _start_worker(self, histories: Table, alerts: Table) -> None:
        self.histories_table, self.alerts_table = histories, alerts
        self.histories = Histories(
            histories,
            window=self.window or self.forecaster.window,
            slack=self.slack,
            reorder=self.reorder,
            grace=self.grace,
            most_rings=self.most_rings,
        )
        ingest = Ingest(self.forecaster.types, self.fields, ahead=self.ahead)
        self.forecasting = Forecasting(ingest, self.histories, self.counters, self.rules)
        self._line: Line[Question] = Line(self.batch, conflate=self.conflate, urgent=self.forecasting.triage.urgent)
        self.alerts = Alerts(alerts, self.rules, self.counters)

    def _run(self, record: Record) -> list[Output]:
        before = len(self.outputs)
        received = self._receive(record)
        if isinstance(received, Question):
            self._line.put(received.entity, received, received.request)
            if len(self._line) >= self.batch + self.waiting:
                self._answer_batch()
        else:
            self._write(received)
        if self.commits and not len(self._line):
            self.commit()
        return self.outputs[before:]

    def _answer_batch(self) -> None:
        batch = self._line.take()
        forecasts = forecast_each(self.forecaster, [ask.request for ask in batch], self.counters)
        for ask, forecast in zip(batch, forecasts, strict=True):
            self._write(self.forecasting.answer(ask.token, forecast, self.forecaster, ask.stands_for))

    def _receive(self, record: Record) -> Question | list[Output]:
        partition = record.source.partition
        waiting = (each.source.offset for each in self._uncommitted if each.source.partition == partition)
        try:
            return self.forecasting.receive(record, committed=min(waiting))
        except NotCommitted:
            self.commit(but=record)
            return self.forecasting.receive(record, committed=record.source.offset)

    def _write(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self.outputs.append(output)
            if output.channel == "warnings":
                source = Source(WARNINGS, 0, self._warnings)
                self._warnings += 1
                warning = Record(source, self.now, output.key, output.value, output.headers)
                self.outputs += self.alerts.receive(warning, committed=source.offset)
