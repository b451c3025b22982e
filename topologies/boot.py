"""Services of ours that an app starts before its own: before the producer, the consumer, the agents and the tables."""

from __future__ import annotations

from collections.abc import Iterator

import faust
from faust.app.base import BootStrategy
from mode.types import ServiceT


def start_first(app: faust.App, service: ServiceT) -> None:
    """Have `app` start `service` first, after those it was told of earlier; they stop last. A failure ends the start."""
    boot = app.boot_strategy
    if not isinstance(boot, _Boot):
        boot = app.boot_strategy = _Boot(app)
    boot.first.append(service)


class _Boot(BootStrategy):
    def __init__(self, app: faust.App) -> None:
        super().__init__(app)
        self.first: list[ServiceT] = []

    def server(self) -> Iterator[ServiceT]:
        yield from self.first
        yield from super().server()
