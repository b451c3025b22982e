"""The live view says what the topics say, whatever they hold and however small the terminal is."""

import io
from typing import Any

import orjson
import pytest
from rich.console import Console

from stream_tpp.cli.live import Screen, View
from stream_tpp.topologies.ledger import Entry, Role
from stream_tpp.warning.rule import Rule

RULE = Rule(alarm={"crash"}, horizon=7200.0, threshold=0.3, name="crashes")
NOON = 1383307200.0  # 1 November 2013


def entry(role: Role, record: Any, **headers: bytes) -> Entry:
    return Entry(role, 0, 0, 0.0, b"a", record if isinstance(record, bytes) else orjson.dumps(record), headers)


def event(entity: str, at: float, kind: str = "tick") -> Entry:
    return entry("events", {"entity": entity, "time": at, "type": kind})


def warned(entity: str, at: float, score: float) -> list[Entry]:
    shared = {"entity": entity, "made_at": at}
    return [entry("forecasts", shared), entry("warnings", {**shared, "rule": "crashes", "score": score})]


def alert(entity: str, at: float, state: str = "raised") -> Entry:
    return entry("alerts", {"entity": entity, "rule": "crashes", "state": state, "at": at, "score": 0.4})


def view(*entries: Entry, total: int = 100) -> View:
    seen = View("demo", "a test", RULE, total)
    seen.take(entries)
    return seen


def text(seen: View, height: int = 30, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(seen.shown(height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_entities_stand_in_order_of_risk_and_old_ones_not_at_all() -> None:
    seen = view(*warned("old", NOON - 7201, 0.9), *warned("low", NOON - 7200, 0.1), *warned("high", NOON, 0.2))
    assert [name for name, _ in seen.riskiest(5)] == ["high", "low"]
    shown = text(seen)
    assert shown.index("high") < shown.index("low")
    assert "20%" in shown
    assert "Fri 01 Nov 2013, 12:00" in shown
    assert "3 of 100 events" in shown


@pytest.mark.parametrize("event_first", [True, False])
def test_an_alert_comes_true_once_whichever_record_is_read_first(event_first: bool) -> None:
    came, raised = event("a", NOON + 3600, "crash"), alert("a", NOON)
    seen = view(*((came, raised) if event_first else (raised, came)), event("a", NOON + 4000, "crash"))
    assert seen.counts["came_true"] == 1
    assert "crash, as warned" in text(seen)
    assert "1.0 h after its alert" in text(seen)


@pytest.mark.parametrize(
    ("after", "kind", "entity"), [(7201, "crash", "a"), (0, "crash", "a"), (60, "tick", "a"), (60, "crash", "b")]
)
def test_what_was_not_warned_of_does_not_make_an_alert_true(after: float, kind: str, entity: str) -> None:
    assert view(alert("a", NOON), event(entity, NOON + after, kind)).counts["came_true"] == 0


def test_a_cleared_alert_no_longer_stands() -> None:
    seen = view(*warned("a", NOON, 0.4), alert("a", NOON))
    assert "● 01 Nov 12:00" in text(seen)
    seen.take([alert("a", NOON + 60, "cleared")])
    assert "●" not in text(seen)
    assert "alert cleared" in text(seen)


@pytest.mark.parametrize("role", ["events", "forecasts", "warnings", "alerts"])
@pytest.mark.parametrize("value", [b"", b"{", b"null", b"[1]", b"{}", b'{"entity": 3, "time": "x", "type": null}'])
def test_what_cannot_be_read_is_counted_and_shows_nothing_else(role: Role, value: bytes) -> None:
    seen = view(entry(role, value))
    assert seen.counts["unreadable"] == 1
    assert "waiting for the first forecast" in text(seen)


def test_names_are_text_without_markup_or_control_codes() -> None:
    kind = "\x1b]0;title\x07crash"
    seen = view(event("[red]x", NOON, kind), *warned("[red]x", NOON, 0.4), alert("[red]x" + "y" * 90, NOON))
    shown = text(seen)
    assert "[red]x " in shown
    assert "[red]xyyyyyyyyyyyyy…" in shown
    assert "?]0;title?crash" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(("height", "width"), [(24, 80), (50, 200), (12, 60)])
def test_it_fits_the_terminal(height: int, width: int) -> None:
    entries = [
        each for number in range(40) for each in (*warned(f"N{number:05}", NOON + number, 0.4), alert(f"N{number:05}", NOON))
    ]
    lines = text(view(*entries), height, width).rstrip("\n").split("\n")
    assert len(lines) <= max(height, 14)
    assert max(map(len, lines)) <= width


def test_rates_are_of_the_last_seconds() -> None:
    now = 0.0
    seen = View("demo", "a test", RULE, 100, clock=lambda: now)
    for second in range(20):
        now = float(second)
        seen.take([entry("forecasts", {"entity": "a", "made_at": NOON})] * (1 if second < 10 else 8))
    assert seen.rate == pytest.approx(8.0)


def test_without_a_terminal_a_line_is_written_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=40)
    screen = Screen(view(*warned("a", NOON, 0.4), alert("a", NOON)), console)
    screen.view.stage = "replaying"
    with screen.running():
        screen.tick()
        screen.tick()
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().splitlines()
    assert line.startswith("replaying: Fri 01 Nov 2013, 12:00, 1 of 100 events")
    assert "1 alerts" in line


def test_on_a_terminal_the_view_is_drawn() -> None:
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    screen = Screen(view(*warned("N14228", NOON, 0.4)), console)
    with screen.running():
        screen.tick()
    assert isinstance(console.file, io.StringIO)
    assert "N14228" in console.file.getvalue()
