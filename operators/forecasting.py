"""Forecasting: from a record on the events topic to a request for the engine, and from its answer to records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stream_tpp.event import InvalidEvent
from stream_tpp.forecast import Forecast, Request
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.dead_letters import LARGEST_VALUE, dead_letter
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.forecasts import forecast_record, warning_record
from stream_tpp.operators.histories import Histories
from stream_tpp.operators.ingest import Ingest
from stream_tpp.operators.records import Output, Record, record_id, seed_of, stands_for_header
from stream_tpp.operators.triage import Triage
from stream_tpp.warning.rule import Rule


@dataclass(frozen=True, slots=True)
class Question:
    """A record whose event was absorbed, and what the engine is asked about it."""

    record: Record
    request: Request

    @property
    def entity(self) -> tuple[int, str]:
        """Whose order of events the question belongs to: an entity's events are in order within a partition."""
        return self.record.source.partition, self.request.entity


class Forecasting:
    """The state machine on the events topic: `receive` each record in order of offset, then `answer` its question.

    `triage` knows the entities that an alert by `rules` may concern next.
    """

    def __init__(self, ingest: Ingest, histories: Histories, counters: Counters, rules: Iterable[Rule] = ()) -> None:
        self.ingest = ingest
        self.histories = histories
        self.counters = counters
        self.triage = Triage(rules)

    def receive(self, record: Record, committed: int) -> Question | list[Output]:
        """What to ask the engine about the record, or what to write at once: a dead letter, or nothing for a repeat.

        Offsets below `committed` are committed. Raises NotCommitted, with nothing changed: commit, then come again.
        """
        try:
            event, type = self.ingest.read(record)
            absorbed = self.histories.absorb(event, type, record.source, committed)
        except InvalidEvent as refusal:
            self.counters.events_in += 1
            return self.refuse(record, refusal.reason, refusal.detail)
        self.counters.events_in += 1
        if absorbed is None:
            self.counters.repeats += 1
            self.counters.processed += 1
            return []
        history, redelivered = absorbed
        self.counters.redelivered += redelivered
        # The newest time of the history and not the event's own: a late event does not turn back the clock.
        request = Request(
            entity=event.entity,
            history=history,
            now=float(history.times[-1]),
            seed=seed_of(record_id(event.entity, record.source)),
        )
        return Question(record, request)

    def answer(
        self, question: Question, forecast: Forecast | Exception, forecaster: Forecaster, stands_for: Sequence[Question] = ()
    ) -> list[Output]:
        """The forecast and the warnings of the event, by the forecaster that made them; a dead letter where it failed.

        `stands_for` are earlier questions about the entity that were not put to the engine: the header of the same name
        tells their offsets. Where the engine failed, they have dead letters too.
        """
        questions = [*stands_for, question]
        if isinstance(forecast, Exception):
            return self._failed(questions, forecast)
        entity, now, source = question.request.entity, question.request.now, question.record.source
        engine = {"model": forecaster.version, "horizon": forecaster.horizon, "paths": forecaster.paths}
        headers = stands_for_header(each.record.source.offset for each in stands_for)
        try:
            outputs = [forecast_record(entity, source, now, forecast, engine, headers)]
            outputs += [warning_record(entity, source, now, score, forecaster.version, headers) for score in forecast.scores]
        except Exception as error:
            return self._failed(questions, error)
        largest = max(len(output.value or b"") for output in outputs)
        if largest > LARGEST_VALUE:
            detail = f"The forecast is a record of {largest} bytes; put fewer futures on it."
            return [letter for each in questions for letter in self.refuse(each.record, "oversized_forecast", detail)]
        self.triage.note(question.entity, forecast.scores)
        self.counters.processed += len(questions)
        self.counters.conflated += len(stands_for)
        self.counters.forecasts += 1
        self.counters.warnings += len(forecast.scores)
        return outputs

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        """The dead letter of a record, counted."""
        self.counters.dead_lettered[reason] += 1
        return [dead_letter(record, reason, detail)]

    def _failed(self, questions: Iterable[Question], error: Exception) -> list[Output]:
        detail = f"{type(error).__name__}: {error}"
        return [letter for each in questions for letter in self.refuse(each.record, "sampler_failed", detail)]
