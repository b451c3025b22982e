"""The live view of a running early-warning topology: what its topics say, as a terminal shows it or as plain lines."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule as Line
from rich.table import Table
from rich.text import Text

from stream_tpp.topologies.ledger import Entry
from stream_tpp.warning.rule import Rule

HOUR = 3600.0
PLAIN_EVERY = 5.0
DRAWN_EVERY = 0.25
RATE_OVER = 5.0
# A score of FULL fills a bar of so many characters.
FULL = 0.5
BAR = 20
SCORES_KEPT = 10
LONGEST_NAME = 20
HAPPENINGS_KEPT = 40

ALERT, RISING, QUIET, GOOD, MUTED = "bold #f0883e", "#d9a520", "#5b9bd5", "#57ab5a", "bright_black"


@dataclass(slots=True)
class Watched:
    """What is known of an entity: its events by time, when alarm events came, its last scores and the time of the last,
    since when an alert stands, and alerts (by time) that have not come true yet.
    """

    types: dict[float, str] = field(default_factory=dict)
    alarms: list[float] = field(default_factory=list)
    at: float = 0.0
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=SCORES_KEPT))
    alert_since: float | None = None
    awaited: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the log of alerts: raised, cleared, or the event that an alert had warned of."""

    at: float
    entity: str
    what: str
    style: str
    more: str


class View:
    """What the topics have said so far, by one rule, of `total` events to come (None: not known yet).

    `take` entries in order of arrival; `shown` is the view for a terminal, `line` the same in a line. `clock` tells
    seconds of real time, for rates.
    """

    def __init__(
        self, title: str, about: str, rule: Rule, total: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self.about = about
        self.rule = rule
        self.total = total
        self.stage = ""
        self.event_clock = 0.0
        self.counts: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.entities: dict[str, Watched] = {}
        self.happenings: deque[Happening] = deque(maxlen=HAPPENINGS_KEPT)
        self._clock = clock
        self._arrivals: deque[tuple[float, int]] = deque()

    def take(self, entries: Iterable[Entry]) -> None:
        """Take in records of the topics; what can't be read is counted and shows nothing else."""
        for entry in entries:
            self.counts[entry.role] += 1
            if entry.role == "dead_letters":
                self.dead_letters[entry.headers.get("reason", b"").decode(errors="replace")] += 1
                continue
            try:
                record = orjson.loads(entry.value or b"null")
                {"events": self._event, "forecasts": self._forecast, "warnings": self._warning, "alerts": self._alert}[
                    entry.role
                ](record)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                self.counts["unreadable"] += 1
        now = self._clock()
        self._arrivals.append((now, self.counts["forecasts"]))
        while self._arrivals[0][0] < now - RATE_OVER:
            self._arrivals.popleft()

    @property
    def done(self) -> int:
        """Events with a forecast or a dead letter."""
        return self.counts["forecasts"] + self.counts["dead_letters"]

    @property
    def seen(self) -> int:
        """Records that came out of the worker."""
        return sum(self.counts[role] for role in ("forecasts", "warnings", "alerts", "dead_letters"))

    @property
    def rate(self) -> float:
        """Forecasts a second, over the last seconds."""
        if len(self._arrivals) < 2:
            return 0.0
        (then, before), (now, after) = self._arrivals[0], self._arrivals[-1]
        return (after - before) / (now - then) if now > then else 0.0

    def riskiest(self, most: int) -> list[tuple[str, Watched]]:
        """Entities by their score, of those whose last forecast is at most a horizon old."""
        fresh = [
            (name, entity)
            for name, entity in self.entities.items()
            if entity.scores and entity.at >= self.event_clock - self.rule.horizon
        ]
        return sorted(fresh, key=lambda item: item[1].scores[-1], reverse=True)[:most]

    def line(self) -> str:
        """The state of things in one line."""
        return (
            f"{self.stage}: {_date(self.event_clock)}, {self._progress()}, {self.rate:.0f}/s, "
            f"{self.counts['raised']} alerts, {self.counts['came_true']} came true, {self.counts['dead_letters']} dead letters"
        )

    def shown(self, height: int = 30) -> RenderableType:
        """The view, in at most so many lines."""
        rows = max(3, min(12, (height - 9) * 3 // 5))
        lines = max(2, min(10, height - 9 - rows))
        return Group(
            self._head(), self._progress_bar(), Line(style=MUTED), self._riskiest(rows), Line(style=MUTED), self._log(lines)
        )

    def _event(self, record: dict[str, Any]) -> None:
        # Only what a model can read as a departure; the rest shows up as dead letters.
        entity, kind, at = record["entity"], record["type"], record["time"]
        if not isinstance(entity, str) or not isinstance(kind, str) or not isinstance(at, float | int):
            raise ValueError("no event")
        watched = self.entities.setdefault(entity, Watched())
        watched.types[at] = kind
        if kind in self.rule.alarm:
            watched.alarms.append(at)
            self._check(entity, watched)

    def _forecast(self, record: dict[str, Any]) -> None:
        self.event_clock = max(self.event_clock, record["made_at"])

    def _warning(self, record: dict[str, Any]) -> None:
        if record["rule"] != self.rule.name:
            return
        watched = self.entities.setdefault(record["entity"], Watched())
        watched.at = record["made_at"]
        watched.scores.append(record["score"])

    def _alert(self, record: dict[str, Any]) -> None:
        if record["rule"] != self.rule.name:
            return
        watched = self.entities.setdefault(record["entity"], Watched())
        raised = record["state"] == "raised"
        watched.alert_since = record["at"] if raised else None
        self.counts[record["state"]] += 1
        what, style = ("alert raised", ALERT) if raised else ("alert cleared", MUTED)
        self.happenings.appendleft(Happening(record["at"], record["entity"], what, style, f"score {record['score']:.0%}"))
        if raised:
            watched.awaited.append(record["at"])
            self._check(record["entity"], watched)

    def _check(self, name: str, watched: Watched) -> None:
        """Which alerts have come true. An alert may be read after the event that it warned of: topics have no common order."""
        for raised in list(watched.awaited):
            at = next((time for time in watched.alarms if raised < time <= raised + self.rule.horizon), None)
            if at is not None:
                watched.awaited.remove(raised)
                self.counts["came_true"] += 1
                what, lead = f"{_name(_words(watched.types[at]))}, as warned", f"{(at - raised) / HOUR:.1f} h after its alert"
                self.happenings.appendleft(Happening(at, name, what, GOOD, lead))

    def _head(self) -> RenderableType:
        head = Table.grid(expand=True, padding=(0, 2, 0, 0))
        head.add_column(no_wrap=True, overflow="ellipsis")
        head.add_column(justify="right", no_wrap=True, overflow="ellipsis", style=MUTED)
        head.add_row(Text.assemble((self.title, "bold"), "  ", (self.stage, QUIET)), self.about)
        return head

    def _progress_bar(self) -> RenderableType:
        bar = ProgressBar(self.total or 1, self.done, style="grey23", complete_style=QUIET, finished_style=GOOD)
        top = Table.grid(expand=True, padding=(0, 2, 0, 0))
        top.add_column(no_wrap=True, style="bold")
        top.add_column(ratio=1)
        top.add_column(justify="right", no_wrap=True)
        top.add_row(_date(self.event_clock), bar, self._progress())
        bottom = Table.grid(expand=True)
        bottom.add_column(no_wrap=True, style=MUTED)
        bottom.add_column(justify="right", no_wrap=True)
        counts = self.counts
        facts = [
            (f"{self.rate:.0f}", "bold", "forecasts/s"),
            (f"{counts['raised']}", ALERT, "alerts"),
            (f"{counts['came_true']}", GOOD, "came true"),
            (f"{counts['dead_letters']}", "bold", "dead letters"),
        ]
        spans = (Text.assemble((figure, style), (f" {name}", MUTED)) for figure, style, name in facts)
        bottom.add_row("event time, UTC", Text("   ").join(spans))
        return Group(top, bottom)

    def _progress(self) -> str:
        return f"{self.done:,} of {self.total:,} events" if self.total else f"{self.done:,} events"

    def _riskiest(self, rows: int) -> RenderableType:
        table = _table()
        table.add_column("riskiest", no_wrap=True, style="bold", min_width=8)
        table.add_column(f"risk within {self.rule.horizon / HOUR:.0f} h", no_wrap=True, width=BAR)
        table.add_column("", justify="right", no_wrap=True, width=4)
        table.add_column("before", no_wrap=True, width=SCORES_KEPT)
        table.add_column("last", no_wrap=True, min_width=9, ratio=1)
        table.add_column("alert since", no_wrap=True, width=14)
        riskiest = self.riskiest(rows)
        for name, watched in riskiest:
            score = watched.scores[-1]
            style = ALERT if watched.alert_since is not None else RISING if score >= self.rule.clears_below else QUIET
            table.add_row(
                _name(name),
                _bar(score, self.rule.threshold, style),
                Text(f"{score:.0%}", style),
                Text(_spark(watched.scores), style),
                _name(_words(watched.types.get(watched.at, ""))),
                Text("" if watched.alert_since is None else f"● {_date(watched.alert_since, '%d %b %H:%M')}", ALERT),
            )
        return Padding(table, (0, 0, rows - len(riskiest), 0))

    def _log(self, lines: int) -> RenderableType:
        table = _table()
        table.add_column("alerts", no_wrap=True, style="bold", min_width=8)
        table.add_column("", no_wrap=True, width=BAR)
        table.add_column("", no_wrap=True, ratio=1, style=MUTED)
        table.add_column("", no_wrap=True, style=MUTED, width=14)
        latest = list(self.happenings)[:lines]
        for each in latest:
            table.add_row(_name(each.entity), Text(each.what, each.style), each.more, f"  {_date(each.at, '%d %b %H:%M')}")
        return Padding(table, (0, 0, lines - len(latest), 0))


class Screen:
    """Shows a view while it runs: a terminal is kept up to date, elsewhere a line is written now and then and with each stage.

    All is drawn by `tick`, in the caller's thread: the view changes under nobody's eyes.
    """

    def __init__(self, view: View, console: Console) -> None:
        self.view = view
        self.console = console
        self._live = Live(get_renderable=self._render, console=console, auto_refresh=False) if console.is_terminal else None
        self._due = 0.0
        self._stage = view.stage

    def running(self) -> AbstractContextManager[object]:
        """While the block runs, the view is shown."""
        return self._live or nullcontext()

    def tick(self) -> None:
        """Call often: draws when it is time."""
        now = time.monotonic()
        if now < self._due and self.view.stage == self._stage:
            return
        self._stage = self.view.stage
        if self._live is None:
            self._due = now + PLAIN_EVERY
            self.console.print(self.view.line(), highlight=False, soft_wrap=True)
        else:
            self._due = now + DRAWN_EVERY
            self._live.refresh()

    def _render(self) -> RenderableType:
        return self.view.shown(self.console.height - 1)


def _table() -> Table:
    return Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style=MUTED, show_edge=False)


def _bar(score: float, threshold: float, style: str) -> Text:
    """A score as a bar in halves of a character, up to FULL, and where the threshold lies."""
    full, half = divmod(round(max(0.0, min(1.0, score / FULL)) * BAR * 2), 2)
    bar = Text("━" * full + "╸" * half, style)
    free, at = full + half, round(threshold / FULL * BAR)
    if free <= at < BAR:
        bar.append(" " * (at - free)).append("┊", MUTED)
    return bar


def _spark(scores: Iterable[float]) -> str:
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(score / FULL * 8))] for score in scores)


def _date(at: float, form: str = "%a %d %b %Y, %H:%M") -> str:
    return f"{datetime.fromtimestamp(at, UTC):{form}}" if at else "waiting for the first forecast"


def _name(name: str) -> Text:
    """A name out of a record: no markup, no control codes, and not too long for a column."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in name[: LONGEST_NAME + 1])
    return Text(printable if len(printable) <= LONGEST_NAME else f"{printable[: LONGEST_NAME - 1]}…")


def _words(kind: str) -> str:
    return kind.replace("_", " ")
