"""Alerts and scores against what happened.

An alert is a hit if an event of its rule's alarm types, of the same entity, follows within the rule's horizon. How many
hits are many is told by the base rate: the share of all forecasts after which such an event followed, which is what alerts
raised at random would hit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_tpp.event import Event
from stream_tpp.warning.rule import Rule


@dataclass(frozen=True, slots=True)
class Scored:
    """The score that a rule gave an entity at a time (seconds)."""

    entity: str
    at: float
    score: float


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert from raised to cleared (seconds; inf while it stands), and the score that raised it."""

    entity: str
    raised: float
    score: float
    cleared: float = math.inf


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judged alert; `lead` is how many seconds after it the alarm event came, None where none came in time."""

    alert: Alert
    lead: float | None


@dataclass(frozen=True)
class Bin:
    """Scores between two bounds: how many, their mean, and the share after which an alarm event followed."""

    low: float
    high: float
    count: int
    mean_score: float
    rate: float


@dataclass(frozen=True)
class Outcomes:
    """How good a rule's alerts and scores were, of those in the judged time.

    `forecasts` of them, and `base_rate` the share of those after which an alarm event followed in time. `alarms` are the
    alarm events, `foreseen` those before which an alert stood, upheld by a forecast at most a horizon old. `auroc` is the
    chance that a score with an alarm event after it is above one without (NaN where there are none of either).
    """

    verdicts: tuple[Verdict, ...]
    forecasts: int
    base_rate: float
    alarms: int
    foreseen: int
    bins: tuple[Bin, ...]
    auroc: float

    @property
    def hits(self) -> int:
        return sum(verdict.lead is not None for verdict in self.verdicts)

    @property
    def precision(self) -> float:
        """Share of alerts that were hits, NaN where there were none."""
        return self.hits / len(self.verdicts) if self.verdicts else math.nan

    @property
    def recall(self) -> float:
        """Share of alarm events that an alert stood before, NaN where there were none."""
        return self.foreseen / self.alarms if self.alarms else math.nan

    @property
    def median_lead(self) -> float:
        """Seconds from a hit to its alarm event, NaN where there was no hit."""
        leads = [verdict.lead for verdict in self.verdicts if verdict.lead is not None]
        return float(np.median(leads)) if leads else math.nan


def judge(
    rule: Rule, scores: Iterable[Scored], alerts: Iterable[Alert], events: Sequence[Event], since: float, until: float
) -> Outcomes:
    """Judge what was said from `since` on by `events`, which are all that happened before `until` (seconds).

    What was said less than a horizon before `until` is left out, hit or not, since the rest of its horizon is not known;
    and so is what happened then, since forecasts may have ended.
    """
    times, alarms = _times(events), _times(event for event in events if event.type in rule.alarm)
    last = until - rule.horizon
    judged = [scored for scored in scores if since <= scored.at <= last]
    came = np.array([_lead(alarms[scored.entity], scored.at, rule.horizon) is not None for scored in judged], dtype=bool)
    values = np.array([scored.score for scored in judged], dtype=np.float64)
    standing: defaultdict[str, list[Alert]] = defaultdict(list)
    verdicts = []
    for alert in sorted(alerts, key=lambda alert: alert.raised):
        standing[alert.entity].append(alert)
        if since <= alert.raised <= last:
            verdicts.append(Verdict(alert, _lead(alarms[alert.entity], alert.raised, rule.horizon)))
    happened = [(entity, at) for entity, each in alarms.items() for at in each if since <= at <= last]
    return Outcomes(
        verdicts=tuple(verdicts),
        forecasts=len(judged),
        base_rate=float(came.mean()) if len(came) else math.nan,
        alarms=len(happened),
        foreseen=sum(_foreseen(standing[entity], times[entity], at, rule.horizon) for entity, at in happened),
        bins=calibration(values, came),
        auroc=auroc(values, came),
    )


def calibration(scores: NDArray[np.float64], came: NDArray[np.bool_], bins: int = 10) -> tuple[Bin, ...]:
    """Scores [n] in bins of about equal count, against whether the alarm event came [n]; equal scores share a bin."""
    if not len(scores):
        return ()
    bounds = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)))
    at = np.clip(np.searchsorted(bounds, scores, side="right") - 1, 0, max(len(bounds) - 2, 0))
    return tuple(
        Bin(
            low=float(bounds[number]),
            high=float(bounds[min(number + 1, len(bounds) - 1)]),
            count=int((at == number).sum()),
            mean_score=float(scores[at == number].mean()),
            rate=float(came[at == number].mean()),
        )
        for number in np.unique(at)
    )


def auroc(scores: NDArray[np.float64], came: NDArray[np.bool_]) -> float:
    """The chance that the score of a case that came is above that of one that did not, ties by half; by rank sums."""
    positive, negative = int(came.sum()), int((~came).sum())
    if not positive or not negative:
        return math.nan
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[place]
    return float((ranks[came].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _times(events: Iterable[Event]) -> defaultdict[str, list[float]]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.entity].append(event.time)
    for each in times.values():
        each.sort()
    return times


def _lead(alarms: Sequence[float], at: float, horizon: float) -> float | None:
    """Seconds from `at` to the next alarm event, None where none comes within the horizon. Alarms are sorted."""
    following = bisect_right(alarms, at)
    if following == len(alarms) or alarms[following] > at + horizon:
        return None
    return alarms[following] - at


def _foreseen(alerts: Sequence[Alert], times: Sequence[float], at: float, horizon: float) -> bool:
    """Whether an alert stood just before `at`, and the entity's last forecast then was at most a horizon old."""
    before = bisect_left(times, at)
    if not before or at > times[before - 1] + horizon:
        return False
    return any(alert.raised < at <= alert.cleared for alert in alerts)
