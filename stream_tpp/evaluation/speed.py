"""How fast the sampler is, beside autoregression on the same cache in the same process.

There are two baselines: `eager`, autoregression by the reference in PyTorch with a key-value cache, and autoregression through
the same backend as speculative sampling. All run in turn, so that a machine whose speed drifts does not favour one of them;
figures are medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stream_tpp.history import History
from stream_tpp.model.model import Model
from stream_tpp.sampling.futures import Futures, Stats
from stream_tpp.sampling.native import sampler as native

DRAFT_LENGTHS = (0, 2, 3, 4, 5, 6, 8, 12)


@dataclass(frozen=True)
class Speed:
    """Events per second, medians over the repeats; speed-ups are medians of the ratios repeat by repeat.

    speedup is over autoregression through the same backend, speedup_over_eager over the reference's.
    """

    draft_length: int
    acceptance: float
    events_per_target_pass: float
    eager_autoregressive_events_per_s: float
    autoregressive_events_per_s: float
    speculative_events_per_s: float
    speedup_over_eager: float
    speedup: float
    backend: str


@dataclass(frozen=True)
class Case:
    """What is sampled: `paths` futures of `events` events of each history."""

    model: Model
    histories: Sequence[History]
    paths: int
    events: int
    mode: str

    def rate(self, draft_length: int, seed: int, backend: Literal["auto", "eager"] = "auto") -> tuple[float, Stats]:
        """Events per second of one run, and what it took."""
        began = time.perf_counter()
        futures: Futures = self.model.sample(
            self.histories,
            max_events=self.events,
            paths=self.paths,
            seed=seed,
            draft_length=draft_length,
            mode=self.mode,
            backend=backend,
        )
        return futures.stats.events / (time.perf_counter() - began), futures.stats

    @property
    def backend(self) -> str:
        """What `auto` comes to."""
        here = native.is_supported(self.model.target, self.model.draft, self.model.device)
        return "native" if here else "eager"

    def best_draft_length(self, lengths: Sequence[int] = DRAFT_LENGTHS, rounds: int = 3) -> int:
        """The fastest of some draft lengths, 0 (autoregression) among them; each is run in turn over a part of the events."""
        part = replace(self, events=max(10, self.events // 4))
        rates: dict[int, list[float]] = {gamma: [] for gamma in lengths}
        for number in range(rounds):
            for gamma in lengths:
                rates[gamma].append(part.rate(gamma, 1000 + number)[0])
        return max(lengths, key=lambda gamma: statistics.median(rates[gamma]))


def measure_speed(case: Case, draft_length: int, repeats: int) -> Speed:
    """Run the two baselines and the sampler in turn, `repeats` times."""
    case.rate(0, 0, "eager"), case.rate(0, 0), case.rate(draft_length, 0)
    eager, plain, drafted, total = [], [], [], Stats()
    for repeat in range(1, repeats + 1):
        eager.append(case.rate(0, repeat, "eager")[0])
        plain.append(case.rate(0, repeat)[0])
        rate, stats = case.rate(draft_length, repeat)
        drafted.append(rate)
        total.add(stats)
    return Speed(
        draft_length=draft_length,
        acceptance=total.acceptance,
        events_per_target_pass=total.events_per_target_pass,
        eager_autoregressive_events_per_s=statistics.median(eager),
        autoregressive_events_per_s=statistics.median(plain),
        speculative_events_per_s=statistics.median(drafted),
        speedup_over_eager=_median_ratio(drafted, eager),
        speedup=_median_ratio(drafted, plain),
        backend=case.backend,
    )


def _median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(rates, others, strict=True))
