"""What a worker counts, for metrics and the end of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Counts since the worker started. events_in = processed + dead_lettered + dropped + those still in flight.

    `events_in` are events read, redelivered ones included; `processed` those whose outputs were handed to the outbox,
    repeats and `conflated` ones (their forecast is a newer one's) among them; `dropped` those that a rebalance took from
    this worker midway (they are delivered again); `dead_lettered` by reason, `warnings_refused` the same for records on the
    warnings topic.
    """

    events_in: int = 0
    processed: int = 0
    redelivered: int = 0
    repeats: int = 0
    conflated: int = 0
    dropped: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    forecasts: int = 0
    warnings: int = 0
    warnings_in: int = 0
    warnings_refused: Counter[str] = field(default_factory=Counter)
    alerts_raised: int = 0
    alerts_cleared: int = 0
    sampler_batches: int = 0
    sampler_failures: int = 0
    models_taken_up: int = 0
    models_refused: int = 0
    last_event_at: float | None = None
