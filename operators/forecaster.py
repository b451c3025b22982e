"""What the operators ask of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stream_tpp.forecast import Forecast, Request


class Forecaster(Protocol):
    """Forecasts of many entities at once; `stream_tpp.forecast.Forecaster` is one.

    A forecast depends on its request alone (history, now and seed), whatever shares the batch. `version` and `types` are
    the model's, `window` the events of history that it reads; `horizon` (seconds) and `paths` are how it simulates.
    """

    @property
    def version(self) -> str: ...
    @property
    def types(self) -> Sequence[str]: ...
    @property
    def window(self) -> int: ...
    @property
    def horizon(self) -> float: ...
    @property
    def paths(self) -> int: ...
    def forecast(self, requests: Sequence[Request]) -> Sequence[Forecast]: ...
