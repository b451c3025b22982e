"""How fast the sampler is, beside autoregression on the same cache in the same process.

The two run in turn, so that a machine whose speed drifts does not favour one of them; figures are medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stream_tpp.history import History
from stream_tpp.model.model import Model
from stream_tpp.sampling.futures import Stats


@dataclass(frozen=True)
class Speed:
    """Events per second of both samplers, medians over the repeats; `speedup` is the median of the ratios pair by pair."""

    acceptance: float
    events_per_target_pass: float
    autoregressive_events_per_s: float
    speculative_events_per_s: float
    speedup: float


def measure_speed(
    model: Model, histories: Sequence[History], *, paths: int, events: int, draft_length: int, mode: str, repeats: int
) -> Speed:
    """Simulate `paths` futures of `events` events of each history, by both samplers in turn, `repeats` times."""

    def run(gamma: int, seed: int) -> tuple[float, Stats]:
        began = time.perf_counter()
        futures = model.sample(histories, max_events=events, paths=paths, seed=seed, draft_length=gamma, mode=mode)
        return futures.stats.events / (time.perf_counter() - began), futures.stats

    run(0, 0), run(draft_length, 0)
    slow, fast, total = [], [], Stats()
    for repeat in range(1, repeats + 1):
        slow.append(run(0, repeat)[0])
        rate, stats = run(draft_length, repeat)
        fast.append(rate)
        total.add(stats)
    return Speed(
        acceptance=total.acceptance,
        events_per_target_pass=total.events_per_target_pass,
        autoregressive_events_per_s=statistics.median(slow),
        speculative_events_per_s=statistics.median(fast),
        speedup=statistics.median(f / s for f, s in zip(fast, slow, strict=True)),
    )
