"""Plots as SVG text to stand inside a page: colours and fonts are the page's own, so that they follow its light and dark.

Each function draws one figure. What a mark means is for the page to say; the figure carries axes and values.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, PercentFormatter

from stream_tpp.evaluation.outcomes import Alert, Outcomes
from stream_tpp.event import Event

# Stand-ins that no figure would use; `svg` turns them into the page's variables of these names.
INK, MUTED, GRID, RISK, ALERT, PAPER = ("#010203", "#020304", "#030405", "#040506", "#050607", "#060708")
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", RISK: "risk", ALERT: "alert", PAPER: "paper"}
TYPE_COLOURS = [f"#0a0b{number:02x}" for number in range(8)]
VARIABLES |= {colour: f"type-{number}" for number, colour in enumerate(TYPE_COLOURS)}
MARKERS = "os^XDvPd"

WIDTH = 8.2
UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class Track:
    """The risk of an entity over time: `scores` at `times` (seconds), its events, and its alerts."""

    entity: str
    times: Sequence[float]
    scores: Sequence[float]
    events: Sequence[Event]
    alerts: Sequence[Alert]


@dataclass(frozen=True)
class Fan:
    """Futures simulated for an entity at `made_at` (seconds) for `horizon` seconds, and the events that came."""

    entity: str
    made_at: float
    horizon: float
    futures: Sequence[Sequence[Event]]
    came: Sequence[Event]


def risk_over_time(tracks: Sequence[Track], threshold: float, types: Mapping[str, int]) -> str:
    """One row an entity: its score as steps, the time an alert stood shaded, its events by type (`types`: order of each)."""
    with _style():
        figure = Figure(figsize=(WIDTH, 0.45 + 1.25 * len(tracks)), layout="constrained")
        rows = list(figure.subplots(len(tracks), sharex=True, sharey=True, squeeze=False)[:, 0])
        end = max((event.time for track in tracks for event in track.events), default=0.0)
        for axes, track in zip(rows, tracks, strict=True):
            _risk(axes, track, threshold, types, end)
        # Room below zero for the row of events.
        top = max((max(track.scores, default=0.0) for track in tracks), default=0.0)
        rows[0].set_ylim(-0.34 * max(top, threshold), 1.12 * max(top, threshold))
        rows[0].yaxis.set_major_locator(MaxNLocator(3, prune="lower"))
        _days(rows[0])
        return svg(figure)


def _risk(axes: Axes, track: Track, threshold: float, types: Mapping[str, int], end: float) -> None:
    for alert in track.alerts:
        axes.axvspan(_date(alert.raised), _date(min(alert.cleared, end)), color=ALERT, alpha=0.16, lw=0)
    axes.axhline(threshold, color=ALERT, lw=0.8, ls=(0, (4, 3)))
    axes.axhline(0, color=GRID, lw=0.8)
    axes.step([_date(time) for time in track.times], list(track.scores), where="post", color=RISK, lw=1.3)
    for name, number in types.items():
        times = [_date(event.time) for event in track.events if event.type == name]
        axes.plot(times, [0.1] * len(times), transform=axes.get_xaxis_transform(), **_marks(number, 4.2))
    axes.xaxis_date()
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_title(track.entity, loc="left", color=INK, fontweight="bold", pad=3)


def _days(axes: Axes) -> None:
    """Ticks at midnights, evenly spaced also across the end of a month; shorter times keep matplotlib's own."""
    low, high = axes.get_xlim()
    if high - low >= 4:
        axes.xaxis.set_major_locator(MultipleLocator(math.ceil((high - low) / 9)))
        axes.xaxis.set_major_formatter(lambda day, _: f"{datetime.fromtimestamp(86400 * day, UTC):%d %b}")


def fan(plotted: Fan, types: Mapping[str, int]) -> str:
    """Above, a row for each simulated future with its events, and what came; below, how many events had come, with bands."""
    with _style():
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        above, below = figure.subplots(2, sharex=True, height_ratios=[1.15, 1])
        _raster(above, plotted, types)
        _counts(below, plotted)
        name, unit = unit_of(plotted.horizon)
        below.set_xlim(-0.01 * plotted.horizon / unit, 1.01 * plotted.horizon / unit)
        below.set_xlabel(f"{name} after the forecast")
        return svg(figure)


def _raster(axes: Axes, plotted: Fan, types: Mapping[str, int]) -> None:
    rows, (_, unit) = len(plotted.futures), unit_of(plotted.horizon)
    for row, future in enumerate([*plotted.futures, plotted.came]):
        real = row == rows
        height = -1.8 if real else rows - 1 - row
        axes.axhline(height, color=GRID, lw=0.6)
        for event in _within(future, plotted):
            size = 6.0 if real else 3.4
            axes.plot((event.time - plotted.made_at) / unit, height, **_marks(types.get(event.type, 0), size))
    axes.set_ylim(-3, rows)
    axes.set_yticks([-1.8, (rows - 1) / 2], ["what came", f"{rows} simulated\nfutures"], color=INK)
    axes.tick_params(axis="y", length=0)


def _within(events: Sequence[Event], plotted: Fan) -> list[Event]:
    return [event for event in events if plotted.made_at < event.time <= plotted.made_at + plotted.horizon]


def _counts(axes: Axes, plotted: Fan) -> None:
    _, unit = unit_of(plotted.horizon)
    after = np.linspace(0, plotted.horizon / unit, 400)
    counts = np.zeros((len(plotted.futures), len(after)))
    for row, future in enumerate(plotted.futures):
        times = np.sort([(event.time - plotted.made_at) / unit for event in _within(future, plotted)])
        counts[row] = np.searchsorted(times, after, side="right")
        axes.step(after, counts[row], where="post", color=RISK, lw=0.5, alpha=0.25)
    for low, high, alpha in ((0.1, 0.9, 0.14), (0.25, 0.75, 0.22)):
        lows, highs = np.quantile(counts, [low, high], axis=0)
        axes.fill_between(after, lows, highs, step="post", color=RISK, alpha=alpha, lw=0)
    axes.step(after, counts.mean(axis=0), where="post", color=RISK, lw=1.5)
    came = np.sort([(event.time - plotted.made_at) / unit for event in _within(plotted.came, plotted)])
    axes.step(after, np.searchsorted(came, after, side="right"), where="post", color=INK, lw=1.8)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylabel("events so far")
    axes.grid(axis="y")


def calibration(outcomes: Outcomes) -> str:
    """Share of alarm events that followed (with its 90 % interval) against the mean score of each bin, and the base rate."""
    with _style():
        figure = Figure(figsize=(WIDTH * 0.72, 3.6), layout="constrained")
        axes = figure.subplots()
        scores = np.array([each.mean_score for each in outcomes.bins])
        rates = np.array([each.rate for each in outcomes.bins])
        lows, highs = np.array([interval(each.rate, each.count) for each in outcomes.bins]).reshape(-1, 2).T
        top = float(max([*scores, *highs, 0.01])) * 1.08
        axes.plot([0, top], [0, top], color=MUTED, lw=0.9)
        _note(axes, (0.93 * top, 0.93 * top), (-6, 2), "as often as said", MUTED)
        axes.axhline(outcomes.base_rate, color=INK, lw=0.9, ls=(0, (4, 3)))
        _note(axes, (top, outcomes.base_rate), (0, 3), f"base rate {outcomes.base_rate:.1%}", INK)
        axes.vlines(scores, lows, highs, color=RISK, lw=1.2)
        axes.plot(scores, rates, "o", color=RISK, ms=5)
        for score, high, each in zip(scores, highs, outcomes.bins, strict=True):
            axes.annotate(
                f"{each.count:,}", (score, high), (0, 3), textcoords="offset points", ha="center", color=MUTED, fontsize=6.5
            )
        axes.set(xlim=(0, top), ylim=(0, top), xlabel="score: the chance that was given", ylabel="share that came true")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
        axes.grid()
        return svg(figure)


def _note(axes: Axes, at: tuple[float, float], shifted: tuple[float, float], text: str, colour: str) -> None:
    axes.annotate(text, at, shifted, textcoords="offset points", ha="right", va="bottom", color=colour)


def mark(number: int) -> str:
    """The mark of a type's events alone, as <svg>, for a legend."""
    with _style():
        figure = Figure(figsize=(0.2, 0.2))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.plot(0.5, 0.5, **_marks(number, 9.0))
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return svg(figure)


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit, by name and in seconds, in which so long a time is at least four."""
    return next((unit for unit in UNITS if seconds >= 4 * unit[1]), UNITS[-1])


def interval(rate: float, count: int, z: float = 1.645) -> tuple[float, float]:
    """Wilson's interval of a share of `count` cases."""
    middle = (rate + z * z / (2 * count)) / (1 + z * z / count)
    margin = z / (1 + z * z / count) * np.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, float(middle - margin)), min(1.0, float(middle + margin))


def svg(figure: Figure) -> str:
    """The figure as an <svg> element in the page's colours and font, the same text for the same figure."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Names like figure_1 come again in every figure of a page, and nothing refers to them.
    drawn = re.sub(r' id="[a-zA-Z0-9.]+_[0-9]+"', "", drawn)
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"(font(?:-family)?:[^;\"']*)'[^;\"]*", r"\1var(--sans)", drawn)
    drawn = re.sub(r'(<svg [^>]*?) ?width="[^"]*"', r"\1", drawn)
    drawn = re.sub(r'(<svg [^>]*?) ?height="[^"]*"', r"\1", drawn)
    return re.sub("|".join(VARIABLES), lambda found: f"var(--{VARIABLES[found[0]]})", drawn)


def _marks(number: int, size: float) -> dict[str, Any]:
    """The look of events of a type: a shape of its own beside its colour, for those who don't see the colour."""
    number %= len(TYPE_COLOURS)
    return {"ls": "", "marker": MARKERS[number], "ms": size, "color": TYPE_COLOURS[number], "mew": 0}


def _date(time: float) -> float:
    """A time in seconds as matplotlib counts dates: in days from the same origin, 1970."""
    return time / 86400.0


def _style() -> AbstractContextManager[None]:
    return mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "stream-tpp",
            "font.size": 8,
            "axes.titlesize": 8,
            "text.color": INK,
            "axes.edgecolor": GRID,
            "axes.labelcolor": MUTED,
            "date.autoformatter.month": "%b %Y",
            "date.autoformatter.day": "%d %b",
            "date.autoformatter.hour": "%d %b, %H h",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.6,
            "xtick.color": GRID,
            "xtick.labelcolor": MUTED,
            "ytick.color": GRID,
            "ytick.labelcolor": MUTED,
            "ytick.major.size": 0,
        }
    )
