"""The report of a run: one HTML file that needs nothing else, for a reader who has never heard of point processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup

from stream_tpp.evaluation import plots
from stream_tpp.evaluation.outcomes import Outcomes, Verdict
from stream_tpp.evaluation.plots import Fan, Track
from stream_tpp.warning.rule import Rule


@dataclass(frozen=True)
class Fact:
    """A figure of the run, what it is called, and what it means in one plain sentence."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Group:
    """Facts that belong together."""

    name: str
    facts: Sequence[Fact]


@dataclass(frozen=True)
class Report:
    """All that the page shows.

    `lead` says in a sentence or two what was done with what data; `question` what the rule asks, in words. `types` are all
    event types in the order in which they are shown, alarm types last. `choice` says how the tracks were chosen, `fan_choice`
    how the fan was. `notes` say what a reader has to know to judge the figures.
    """

    title: str
    lead: str
    question: str
    rule: Rule
    types: Sequence[str]
    outcomes: Outcomes
    groups: Sequence[Group]
    tracks: Sequence[Track]
    choice: str
    fan: Fan | None
    fan_choice: str
    notes: Sequence[str]
    sound: bool
    accounts: str
    footer: str


def write(report: Report, path: Path) -> None:
    """Write the page. Raises OSError where it can't be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The page as text; whatever comes out of records is escaped."""
    order = {name: number for number, name in enumerate(report.types)}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "duration": duration, "clock": clock}
    # matplotlib escapes the text in its figures.
    return environment.get_template("report.html").render(
        report=report,
        outcomes=report.outcomes,
        legend=_legend(order),
        risk=Markup(plots.risk_over_time(report.tracks, report.rule.threshold, order)) if report.tracks else None,
        fan=Markup(plots.fan(report.fan, order)) if report.fan else None,
        calibration=Markup(plots.calibration(report.outcomes)) if report.outcomes.bins else None,
        verdicts=sorted(report.outcomes.verdicts, key=_by_score, reverse=True),
    )


def percent(share: float, decimals: int = 0) -> str:
    """A share in percent, with at most so many decimals."""
    return "none" if math.isnan(share) else f"{round(100 * share, decimals):g}%"


def duration(seconds: float | None) -> str:
    """A length of time in the unit that suits it."""
    if seconds is None or math.isnan(seconds):
        return "none"
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{1000 * seconds:.0f} ms"


def clock(time: float) -> str:
    """An event time in UTC."""
    return f"{datetime.fromtimestamp(time, UTC):%d %b %Y, %H:%M}"


def _by_score(verdict: Verdict) -> float:
    return verdict.alert.score


def _legend(order: Mapping[str, int]) -> list[tuple[str, Markup]]:
    return [(name, Markup(plots.mark(number))) for name, number in order.items()]
