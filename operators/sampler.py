"""The sampler thread: the engine runs here, on micro-batches, and never on the event loop."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from stream_tpp.forecast import Forecast, Request
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster

Token = TypeVar("Token")
Waiting: TypeAlias = "queue.SimpleQueue[tuple[Token, Request] | None]"

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
    """A thread that answers requests in micro-batches, across entities and partitions, in order of arrival.

    A batch closes at `max_batch` requests, or `max_wait` seconds after its first. `deliver` is called on the thread with
    the tokens of a batch, each with its forecast or the exception that it caused.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        deliver: Callable[[list[tuple[Token, Forecast | Exception]]], None],
        counters: Counters,
        *,
        max_batch: int = 16,
        max_wait: float = 0.005,
    ) -> None:
        self.forecaster = forecaster
        self.deliver = deliver
        self.counters = counters
        self.max_batch = max_batch
        self.max_wait = max_wait
        self._waiting: Waiting[Token] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. What was submitted before is answered too."""
        if not self.alive:
            self._thread = threading.Thread(target=self._run, args=[self._waiting], name="stream-tpp-sampler", daemon=True)
            self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """End the thread when it has answered what was submitted; wait for that at most `within` seconds."""
        thread, waiting = self._thread, self._waiting
        # A queue of its own for each thread: the end of one is never read by the next.
        self._thread, self._waiting = None, queue.SimpleQueue()
        waiting.put(None)
        if thread is not None:
            thread.join(within)

    def submit(self, token: Token, request: Request) -> None:
        self._waiting.put((token, request))

    def _run(self, waiting: Waiting[Token]) -> None:
        last = False
        while not last and (first := waiting.get()) is not None:
            batch, last = self._batch(first, waiting)
            forecasts = forecast_each(self.forecaster, [request for _, request in batch], self.counters)
            try:
                self.deliver([(token, forecast) for (token, _), forecast in zip(batch, forecasts, strict=True)])
            except RuntimeError as error:
                # The event loop was closed meanwhile: nobody waits for these any more.
                log.warning("Nobody takes the forecasts of %d events: %r", len(batch), error)

    def _batch(self, first: tuple[Token, Request], waiting: Waiting[Token]) -> tuple[list[tuple[Token, Request]], bool]:
        """The next batch, and whether the thread is to end after it."""
        batch = [first]
        closes = time.monotonic() + self.max_wait
        while len(batch) < self.max_batch:
            try:
                # An item that waits is taken whatever the time, so a backlog fills whole batches.
                item = waiting.get(timeout=max(closes - time.monotonic(), 0.0))
            except queue.Empty:
                break
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False
