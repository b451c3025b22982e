"""The sampler thread: the engine runs here, on micro-batches, and never on the event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from stream_tpp.forecast import Forecast, Request
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.line import Ask, Line

Token = TypeVar("Token")

log = logging.getLogger(__name__)


def forecast_each(forecaster: Forecaster, requests: Sequence[Request], counters: Counters) -> list[Forecast | Exception]:
    """The forecast of each request, in order. When a batch fails its requests are tried one by one, so that only the
    guilty one gets an exception for an answer.
    """
    counters.sampler_batches += 1
    try:
        forecasts = forecaster.forecast(requests)
        if len(forecasts) != len(requests):
            raise RuntimeError(f"The engine gave {len(forecasts)} forecasts for {len(requests)} requests.")
        return list(forecasts)
    except Exception as error:
        log.warning("The engine failed on a batch of %d: %r", len(requests), error)
        counters.sampler_failures += 1
        if len(requests) == 1:
            return [error]
    return [forecast_each(forecaster, [request], counters)[0] for request in requests]


class Sampler(Generic[Token]):
    """A thread that answers requests in micro-batches, across entities and partitions, in the order of a `Line`.

    `deliver` is called on the thread with what a batch asked, each with its forecast or the exception that it caused, and
    the forecaster that answered: `forecaster` may be replaced at any time, and the next batch is the new one's.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        deliver: Callable[[Forecaster, list[tuple[Ask[Token], Forecast | Exception]]], None],
        counters: Counters,
        *,
        max_batch: int = 16,
        max_wait: float = 0.0,
        conflate: bool = False,
        urgent: Callable[[Hashable], bool] = lambda entity: False,
    ) -> None:
        self.forecaster = forecaster
        self.deliver = deliver
        self.counters = counters
        self.max_wait = max_wait
        self._new_line: Callable[[], Line[Token]] = lambda: Line(max_batch, conflate=conflate, urgent=urgent)
        self._line = self._new_line()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. What was submitted before is answered too."""
        if not self.alive:
            self._thread = threading.Thread(target=self._run, args=[self._line], name="stream-tpp-sampler", daemon=True)
            self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """End the thread when it has answered what was submitted; wait for that at most `within` seconds."""
        thread, line = self._thread, self._line
        # A line of its own for each thread: the end of one is never read by the next.
        self._thread, self._line = None, self._new_line()
        line.close()
        if thread is not None:
            thread.join(within)

    def submit(self, entity: Hashable, token: Token, request: Request) -> None:
        self._line.put(entity, token, request)

    def clear(self) -> None:
        """Forget what was submitted and is not with the engine yet."""
        self._line.clear()

    def _run(self, line: Line[Token]) -> None:
        while batch := line.take(self.max_wait):
            forecaster = self.forecaster
            forecasts = forecast_each(forecaster, [ask.request for ask in batch], self.counters)
            try:
                self.deliver(forecaster, list(zip(batch, forecasts, strict=True)))
            except RuntimeError as error:
                # The event loop was closed meanwhile: nobody waits for these any more.
                log.warning("Nobody takes the forecasts of %d events: %r", len(batch), error)
