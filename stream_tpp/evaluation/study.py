"""Is a model sampled exactly? Speculative against autoregressive paths, and against the model's own law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stream_tpp.evaluation.fidelity import Comparison, NextEventDistance, compare, next_event_distance
from stream_tpp.evaluation.own_law import OwnLaw, examine, judge
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.evaluation.sampled import Sampled, Sampler, next_events, sample_paths
from stream_tpp.sampling.futures import Stats

if TYPE_CHECKING:
    from stream_tpp.model.model import Model

_OTHER_SEED = 1 << 62  # two samplers with one seed share random numbers: their samples would not be independent
_NEXT_EVENT_PROMPTS, _FIRST_EVENTS = 5, 100


@dataclass(frozen=True, slots=True)
class Exactness:
    """What one sampler was found to do; `passed` when no test rejects at the level it was given."""

    sampler: Sampler
    comparison: Comparison
    own_law: OwnLaw
    next_event: NextEventDistance
    stats: Stats
    passed: bool


@dataclass(frozen=True, slots=True)
class Study:
    """How to look: `paths` futures of each prompt over `horizon` seconds, and `draws` of the next event after long histories.

    level: the chance that any test rejects an exact sampler.
    """

    horizon: float
    paths: int
    draws: int
    level: float
    seed: int

    def autoregressive(self, model: Model, prompts: Sequence[Prompt]) -> Sampled:
        """The paths that every sampler is compared with."""
        return sample_paths(model, prompts, self.horizon, self.paths, Sampler(0), self.seed + _OTHER_SEED)

    def of(self, model: Model, prompts: Sequence[Prompt], sampler: Sampler, against: Sampled) -> Exactness:
        """Half of the level goes to the comparison with `against`, half to that with the model's own law."""
        sampled = sample_paths(model, prompts, self.horizon, self.paths, sampler, self.seed)
        comparison = compare(sampled.paths, against.paths, seed=self.seed, level=self.level / 2)
        own = examine(judge(model, prompts, sampled.paths, sampled.complete, self.seed), self.level / 2)
        return Exactness(
            sampler,
            comparison,
            own,
            self.next_event(model, prompts, sampler),
            sampled.stats,
            comparison.passed and min(own.tests.values()) >= self.level / 2,
        )

    def next_event(self, model: Model, prompts: Sequence[Prompt], sampler: Sampler) -> NextEventDistance:
        """The paper's D_WS: the event after the first 100 of the longest histories, means over them."""
        longest = sorted(prompts, key=lambda prompt: -len(prompt.history))[:_NEXT_EVENT_PROMPTS]
        found = []
        for number, prompt in enumerate(longest):
            early = prompt.first(_FIRST_EVENTS)
            seed = self.seed + (number << 32)
            drawn = next_events(model, early, self.draws, sampler, seed)
            other = next_events(model, early, self.draws, Sampler(0), seed + _OTHER_SEED)
            found.append(next_event_distance((drawn[0], other[0]), (drawn[1], other[1]), seed=self.seed))
        return NextEventDistance(*(float(np.mean(column)) for column in zip(*map(_figures, found), strict=True)))


def _figures(distance: NextEventDistance) -> tuple[float, ...]:
    return tuple(getattr(distance, name) for name in NextEventDistance.__slots__)
