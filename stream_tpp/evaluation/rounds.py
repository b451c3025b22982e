"""What a round of the sampler costs and yields at several draft lengths, and which length pays best.

All lengths run in turn in one process, so that a machine whose speed drifts favours none of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.sampling.draft_length import LONGEST, events_a_round
from stream_tpp.sampling.futures import Stats

if TYPE_CHECKING:
    from stream_tpp.model.model import Model

LENGTHS = (0, 1, 2, 4, 8)


@dataclass(frozen=True)
class Runs:
    """At one draft length: seconds of a round and events per second, once for each history; what all runs together did."""

    seconds: tuple[float, ...]
    events_per_s: tuple[float, ...]
    stats: Stats


@dataclass(frozen=True)
class Rounds:
    """Runs by draft length, 0 (autoregression, whose round is one pass of the target) and two others at least among them.

    A round that drafts costs pass_cost + gamma draft_cost, in autoregressive rounds: a straight line through what was measured.
    """

    runs: dict[int, Runs]

    @cached_property
    def _line(self) -> tuple[float, float]:
        lengths = sorted(self.runs)[1:]
        slope, start = np.polyfit(lengths, [self._round(gamma) for gamma in lengths], 1)
        return float(start) / self._round(0), max(float(slope), 0.0) / self._round(0)

    @property
    def pass_cost(self) -> float:
        """What a round costs beside its drafted events: the target's pass, verification and roll-back."""
        return self._line[0]

    @property
    def draft_cost(self) -> float:
        """What one more drafted event costs: drafting it, and the target reading it with the others."""
        return self._line[1]

    @property
    def acceptance(self) -> float:
        """The chance a that a drafted event stands where those before it do."""
        return self.runs[4 if 4 in self.runs else max(self.runs)].stats.chance

    def speedup(self, gamma: int) -> float:
        """Events per second over those of autoregression, the median over the histories."""
        pairs = zip(self.runs[gamma].events_per_s, self.runs[0].events_per_s, strict=True)
        return statistics.median(fast / slow for fast, slow in pairs)

    def expected(self, gamma: int) -> float:
        """The same by the line and by (1 - a^(gamma + 1)) / (1 - a) events a round, for lengths that were not run."""
        if gamma == 0:
            return 1.0
        return events_a_round(self.acceptance, gamma) / (self.pass_cost + gamma * self.draft_cost)

    @property
    def best(self) -> int:
        """The draft length, 0 to LONGEST, that is expected to be fastest."""
        return max(range(LONGEST + 1), key=self.expected)

    def _round(self, gamma: int) -> float:
        return statistics.median(self.runs[gamma].seconds)


def measure_rounds(
    model: Model,
    prompts: Sequence[Prompt],
    lengths: Sequence[int],
    *,
    paths: int,
    events: int,
    seed: int,
    done: Callable[[float], None],
) -> Rounds:
    """`paths` futures of `events` events of each prompt, one prompt at a time, at each draft length in turn."""

    def run(gamma: int, prompt: Prompt, place: int) -> tuple[float, Stats]:
        began = time.perf_counter()
        futures = model.sample(
            [prompt.history], now=prompt.now, max_events=events, paths=paths, seed=seed + place, draft_length=gamma
        )
        return time.perf_counter() - began, futures.stats

    for gamma in lengths:
        run(gamma, prompts[0], 0)
    found: dict[int, list[tuple[float, Stats]]] = {gamma: [] for gamma in lengths}
    for place, prompt in enumerate(prompts):
        for gamma in lengths:
            found[gamma].append(run(gamma, prompt, place))
        done(place + 1)
    return Rounds({gamma: _together(runs) for gamma, runs in found.items()})


def _together(found: list[tuple[float, Stats]]) -> Runs:
    total = Stats()
    for _, stats in found:
        total.add(stats)
    return Runs(
        tuple(seconds / stats.target_passes for seconds, stats in found),
        tuple(stats.events / seconds for seconds, stats in found),
        total,
    )
