"""Forecast and warning records: what the engine says of one event, as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from stream_tpp.forecast import Forecast
from stream_tpp.operators.records import Output, Source, encode, record_id, warning_id
from stream_tpp.warning.score import Score


class NotANumber(ValueError):
    """The engine gave a NaN where a forecast has a number."""


def forecast_record(
    entity: str,
    source: Source,
    made_at: float,
    forecast: Forecast,
    engine: Mapping[str, object],
    headers: Mapping[str, bytes],
) -> Output:
    """The forecast made at the event at `source`; `engine` holds what all forecasts share: model, horizon, paths.

    `made_at` is in event time (seconds), so that the same event always gives the same bytes. Raises NotANumber.
    """
    _refuse_nan(forecast.gap_quantiles.values())
    _refuse_nan(forecast.next_types.values())
    _refuse_nan(number for count in forecast.counts.values() for number in count.values())
    record: dict[str, object] = {
        "id": record_id(entity, source),
        "entity": entity,
        "made_at": made_at,
        "source": source._asdict(),
        **engine,
        "next": {"gap_quantiles": dict(forecast.gap_quantiles), "types": dict(forecast.next_types)},
        "counts": {type: dict(count) for type, count in forecast.counts.items()},
    }
    if forecast.futures:
        record["futures"] = [{"times": path.times, "types": path.types} for path in forecast.futures]
    return Output("forecasts", entity.encode(), encode(record), headers)


def warning_record(entity: str, source: Source, made_at: float, score: Score, model: str, headers: Mapping[str, bytes]) -> Output:
    """The warning of one rule at the event at `source`. Raises NotANumber."""
    _refuse_nan([score.score, score.low, score.high, *score.lead_quantiles.values()])
    record = {
        "id": warning_id(entity, source, score.rule),
        "entity": entity,
        "made_at": made_at,
        "source": source._asdict(),
        "model": model,
        "rule": score.rule,
        "score": score.score,
        "low": score.low,
        "high": score.high,
        "lead_quantiles": dict(score.lead_quantiles),
    }
    return Output("warnings", entity.encode(), encode(record), headers)


def _refuse_nan(numbers: Iterable[float]) -> None:
    # JSON would turn NaN into null without a word.
    if any(math.isnan(number) for number in numbers):
        raise NotANumber("The forecast holds NaN.")
