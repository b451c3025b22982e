"""Forecasting: from a record on the events topic to a request for the engine, and from its answer to records."""

from __future__ import annotations

from dataclasses import dataclass

from stream_tpp.event import InvalidEvent
from stream_tpp.forecast import Forecast, Request
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.dead_letters import LARGEST_VALUE, dead_letter
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.forecasts import forecast_record, warning_record
from stream_tpp.operators.histories import Histories
from stream_tpp.operators.ingest import Ingest
from stream_tpp.operators.records import Output, Record, record_id, seed_of


@dataclass(frozen=True, slots=True)
class Question:
    """A record whose event was absorbed, and what the engine is asked about it."""

    record: Record
    request: Request


class Forecasting:
    """The state machine on the events topic: `receive` each record in order of offset, then `answer` its question."""

    def __init__(self, ingest: Ingest, histories: Histories, forecaster: Forecaster, counters: Counters) -> None:
        self.ingest = ingest
        self.histories = histories
        self.forecaster = forecaster
        self.counters = counters

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

    def answer(self, question: Question, forecast: Forecast | Exception) -> list[Output]:
        """The forecast and the warnings of the event; a dead letter where the engine failed on it."""
        if isinstance(forecast, Exception):
            return self._failed(question, forecast)
        entity, now, source = question.request.entity, question.request.now, question.record.source
        version = self.forecaster.version
        engine = {"model": version, "horizon": self.forecaster.horizon, "paths": self.forecaster.paths}
        try:
            outputs = [forecast_record(entity, source, now, forecast, engine)]
            outputs += [warning_record(entity, source, now, score, version) for score in forecast.scores]
        except Exception as error:
            return self._failed(question, error)
        largest = max(len(output.value or b"") for output in outputs)
        if largest > LARGEST_VALUE:
            detail = f"The forecast is a record of {largest} bytes; put fewer futures on it."
            return self.refuse(question.record, "oversized_forecast", detail)
        self.counters.processed += 1
        self.counters.forecasts += 1
        self.counters.warnings += len(forecast.scores)
        return outputs

    def refuse(self, record: Record, reason: str, detail: str) -> list[Output]:
        """The dead letter of a record, counted."""
        self.counters.dead_lettered[reason] += 1
        return [dead_letter(record, reason, detail)]

    def _failed(self, question: Question, error: Exception) -> list[Output]:
        return self.refuse(question.record, "sampler_failed", f"{type(error).__name__}: {error}")
