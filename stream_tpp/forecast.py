"""Forecasts: what a stream asks of a model about many entities at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import Law
from stream_tpp.model.model import Model
from stream_tpp.model.next_event import NextEvent
from stream_tpp.sampling.futures import Futures, Stats
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.prefixes import MOST_BYTES, Prefixes
from stream_tpp.sampling.sampler import sample_all
from stream_tpp.warning.rule import Rule
from stream_tpp.warning.score import Evidence, Score, pooled

_QUANTILES = (0.1, 0.5, 0.9)
_RULE_SEED = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Request:
    """An entity's history, the time that counts as now (seconds, not before its last event), and the seed of its paths."""

    entity: str
    history: History
    now: float
    seed: int


@dataclass(frozen=True, slots=True)
class Path:
    """One simulated future: times (absolute seconds) and types of its events."""

    times: list[float]
    types: list[str]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to come of one entity.

    gap_quantiles: seconds from now to the next event. next_types: probability of each type of the next event. counts: of
    each type, events within the horizon: mean, 10 % and 90 % quantile. scores: one a rule.
    """

    gap_quantiles: dict[str, float]
    next_types: dict[str, float]
    counts: dict[str, dict[str, float]]
    scores: tuple[Score, ...]
    futures: tuple[Path, ...]


class Forecaster:
    """Forecasts and warning scores of a model, a batch of entities at a time.

    A forecast is a function of its request alone: history, now and seed. `paths` futures are simulated for the counts, and
    as many with the alarm types suppressed for each rule; more of those, up to `most_paths`, while the interval of a score
    still holds the rule's threshold. `published` of the futures go into the forecast. `stats` adds up what sampling cost.

    What was read of an entity's history is kept in `prefixes` and read on when its next event comes: it changes no bit of a
    forecast. Between calls it takes `prefix_bytes` at most, the entities asked about last going last.
    """

    def __init__(
        self,
        model: Model,
        rules: Sequence[Rule] = (),
        *,
        horizon: float,
        paths: int = 64,
        most_paths: int = 256,
        published: int = 0,
        draft_length: int = 0,
        prefix_bytes: int = MOST_BYTES,
    ) -> None:
        """Raises StreamTppError for a rule that names a type which the model doesn't know."""
        self.model = model
        self.rules = tuple(rules)
        self.horizon = horizon
        self.paths = paths
        self.most_paths = most_paths
        self.published = published
        self.stats = Stats()
        self.prefixes = Prefixes(prefix_bytes)
        self._plan = Plan(paths=paths, horizon=horizon, draft_length=draft_length, max_events=_MOST_EVENTS)
        self._rule_plans = [
            replace(self._plan, horizon=rule.horizon, permitted=_permitted(model.types, rule)) for rule in self.rules
        ]
        # What is compiled at first use is compiled now, and not while events wait.
        model.next_event([History()], now=0.0).median()

    @property
    def version(self) -> str:
        """The model's version."""
        return self.model.version

    @property
    def types(self) -> tuple[str, ...]:
        """The model's vocabulary."""
        return self.model.types

    @property
    def window(self) -> int:
        """Events of history that the model reads."""
        return self.model.window

    def forecast(self, requests: Sequence[Request]) -> list[Forecast]:
        """One forecast a request. Raises SamplingError where the model gives no law for one of them."""
        if not requests:
            return []
        try:
            return self._forecast(requests)
        finally:
            self.prefixes.trim()

    def _forecast(self, requests: Sequence[Request]) -> list[Forecast]:
        futures, *suppressed = self._sample(requests, [self._plan, *self._rule_plans], range(1 + len(self.rules)))
        scores = [self._scores(requests, number, first) for number, first in enumerate(suppressed)]
        assert futures.next is not None
        gaps = self._gap_quantiles(requests, futures.next)
        next_types = futures.next.types().exp().tolist()
        counts = self._counts(futures)
        return [
            Forecast(
                gap_quantiles=gaps[row],
                next_types=dict(zip(self.types, next_types[row], strict=True)),
                counts=counts[row],
                scores=tuple(of_rule[row] for of_rule in scores),
                futures=self._published(futures, row),
            )
            for row in range(len(requests))
        ]

    def _sample(self, requests: Sequence[Request], plans: Sequence[Plan], salts: Sequence[int]) -> list[Futures]:
        futures = sample_all(
            self.model.target,
            self.model.draft,
            [request.history for request in requests],
            plans,
            scale=self.model.scale,
            types=len(self.types),
            window=self.window,
            seeds=[[request.seed + salt * _RULE_SEED for request in requests] for salt in salts],
            now=[request.now for request in requests],
            device=self.model.device,
            prefixes=self.prefixes,
            entities=[request.entity for request in requests],
        )
        for each in futures:
            self.stats.add(each.stats)
        return futures

    def _scores(self, requests: Sequence[Request], number: int, first: Futures) -> list[Score]:
        """Scores by one rule, from its first paths; undecided ones get more while the budget lasts."""
        rule, plan = self.rules[number], self._rule_plans[number]
        evidence = [[Evidence.of(first, row)] for row in range(len(requests))]
        scores = [of_request[0].score(rule.name) for of_request in evidence]
        for first_path in range(self.paths, self.most_paths, self.paths):
            undecided = [i for i, score in enumerate(scores) if score.low < rule.threshold <= score.high]
            if not undecided:
                break
            more = replace(plan, first_path=first_path)
            (futures,) = self._sample([requests[i] for i in undecided], [more], [number + 1])
            for row, i in enumerate(undecided):
                evidence[i].append(Evidence.of(futures, row))
                scores[i] = pooled(evidence[i]).score(rule.name)
        return scores

    def _gap_quantiles(self, requests: Sequence[Request], law: Law) -> list[dict[str, float]]:
        levels = torch.tensor(_QUANTILES, dtype=torch.float64)
        following = NextEvent.after(law, self.model.scale, [r.history for r in requests], [r.now for r in requests])
        rows = following.quantile(levels).tolist()
        return [{str(q): gap for q, gap in zip(_QUANTILES, row, strict=True)} for row in rows]

    def _counts(self, futures: Futures) -> list[dict[str, dict[str, float]]]:
        kinds = torch.arange(len(self.types))
        counts = (futures.types[..., None] == kinds).sum(2).to(torch.float64)
        mean = counts.mean(1).tolist()
        p10, p90 = torch.quantile(counts, torch.tensor([0.1, 0.9], dtype=torch.float64), dim=1).tolist()
        return [
            {name: {"mean": mean[row][k], "p10": p10[row][k], "p90": p90[row][k]} for k, name in enumerate(self.types)}
            for row in range(len(counts))
        ]

    def _published(self, futures: Futures, row: int) -> tuple[Path, ...]:
        paths = []
        for path in range(min(self.published, futures.types.shape[1])):
            n = int(futures.lengths[row, path])
            kinds = futures.types[row, path, :n].tolist()
            paths.append(Path(futures.times[row, path, :n].tolist(), [self.types[k] for k in kinds]))
        return tuple(paths)


_MOST_EVENTS = 1000


def _permitted(types: Sequence[str], rule: Rule) -> Tensor:
    unknown = sorted(rule.alarm - set(types))
    if unknown:
        raise StreamTppError(
            f"The rule {rule.name!r} names types that the model doesn't know: {', '.join(unknown)}. It knows: {', '.join(types)}."
        )
    return torch.tensor([name not in rule.alarm for name in types])
