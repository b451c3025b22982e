"""The page stands alone, in light and dark, and shows whatever the records held as text and nothing else."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from stream_tpp.evaluation.outcomes import Alert, Scored, judge
from stream_tpp.evaluation.plots import MARKERS, Fan, Track, interval, unit_of
from stream_tpp.evaluation.report import Fact, Group, Report, duration, percent, render, write
from stream_tpp.event import Event
from stream_tpp.warning.rule import Rule

RULE = Rule(alarm={"very_late", "cancelled"}, horizon=86400.0, threshold=0.2)
TYPES = ("on_time", "late", "very_late", "cancelled")
START = 1383264000.0  # 1 November 2013
HOUR = 3600.0


def flights(entity: str, seed: int) -> list[Event]:
    generator = np.random.default_rng(seed)
    times = START + np.cumsum(generator.gamma(2.0, 6 * HOUR, 40))
    return [Event(entity, float(time), str(generator.choice(TYPES, p=[0.7, 0.15, 0.1, 0.05]))) for time in times]


def report() -> Report:
    names = ["N14228", "N24211", "<script>alert(1)</script>"]
    tracks, scores, alerts, events = [], [], [], []
    for seed, entity in enumerate(names):
        generator = np.random.default_rng(seed)
        log = flights(entity, seed)
        values = generator.beta(1, 8, len(log))
        raised = [
            Alert(entity, event.time, float(v), event.time + 20 * HOUR) for event, v in zip(log, values, strict=True) if v >= 0.2
        ]
        tracks.append(Track(entity, [event.time for event in log], [float(value) for value in values], log, raised))
        scores += [Scored(entity, event.time, float(value)) for event, value in zip(log, values, strict=True)]
        alerts += raised
        events += log
    futures = [
        [replace(e, time=e.time - 40 * HOUR * (e.time > START + 40 * HOUR)) for e in flights("x", s)[:6]] for s in range(24)
    ]
    return Report(
        title="Early warnings on real flights",
        lead="Two aircraft & a bad one.",
        question="a very late or cancelled departure",
        rule=RULE,
        types=TYPES,
        outcomes=judge(RULE, scores, alerts, events, START, max(event.time for event in events)),
        groups=[Group("Accounts", [Fact("events in", "120", "Records on the events topic.")])],
        tracks=tracks,
        choice="All there are.",
        fan=Fan("N14228", START, 72 * HOUR, futures, flights("N14228", 0)[:5]),
        fan_choice="The first.",
        notes=["Nothing else."],
        sound=True,
        accounts="120 events came in.",
        footer="model 1",
    )


class Page(HTMLParser):
    """Tags in order, addresses that the page would fetch, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attributes)
        self.fetched += [value for name in ("src", "href", "xlink:href") if (value := named.get(name)) and value[0] != "#"]
        self.ids += [named["id"] or ""] if "id" in named else []


@pytest.fixture(scope="module")
def page() -> str:
    return render(report())


def test_the_page_fetches_nothing_and_runs_nothing(page: str) -> None:
    read = Page(page)
    assert not read.fetched
    assert not {"script", "link", "iframe", "img", "object"} & set(read.tags)
    assert "url(http" not in page
    assert "@import" not in page


def test_what_comes_out_of_records_is_text(page: str) -> None:
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Two aircraft &amp; a bad one." in page


def test_three_figures_take_their_colours_and_font_from_the_page(page: str) -> None:
    assert page.count('role="img"') == 3
    assert "prefers-color-scheme: dark" in page
    for figure in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert not re.search(r"#[0-9a-f]{6}\b(?!\w)", re.sub(r'(href="|url\()#\w+', "", figure))
        assert "DejaVu" not in figure
    used = set(re.findall(r"var\(--([\w-]+)\)", page))
    assert used <= set(re.findall(r"--([\w-]+):", page))


def test_the_same_run_gives_the_same_page(page: str) -> None:
    assert render(report()) == page


def test_each_alert_is_listed_with_what_came_of_it(page: str) -> None:
    outcomes = report().outcomes
    assert len(outcomes.verdicts) > 3
    assert page.count('class="hit"') == outcomes.hits
    assert page.count('class="miss"') == len(outcomes.verdicts) - outcomes.hits


def test_a_run_without_alerts_scores_or_futures_is_still_a_page(tmp_path: Path) -> None:
    empty = replace(report(), tracks=[], fan=None, outcomes=judge(RULE, [], [], [], START, START))
    write(empty, tmp_path / "new" / "report.html")
    text = (tmp_path / "new" / "report.html").read_text()
    assert "<figure" not in text
    assert "nan" not in text


def test_every_type_has_a_shape_of_its_own() -> None:
    assert len(set(MARKERS)) == len(MARKERS) == 8


def test_the_interval_of_a_share_holds_it_and_stays_within_nought_and_one() -> None:
    for rate, count in ((0.0, 1), (0.0, 100), (0.3, 10), (1.0, 5)):
        low, high = interval(rate, count)
        assert 0.0 <= low <= rate <= high <= 1.0
    assert interval(0.5, 10)[0] < interval(0.5, 1000)[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (float("nan"), "none"),
        (0.25, "250 ms"),
        (3.64, "3.6 s"),
        (45.0, "45 s"),
        (600.0, "10 min"),
        (5400.0, "90 min"),
        (86400.0, "24 h"),
        (1.5e6, "17 days"),
    ],
)
def test_a_duration_is_told_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_share_has_no_more_decimals_than_it_needs() -> None:
    assert [percent(0.2), percent(0.1, 1), percent(0.041, 1), percent(float("nan"))] == ["20%", "10%", "4.1%", "none"]


def test_the_unit_of_an_axis_goes_into_its_length_at_least_four_times() -> None:
    assert unit_of(72 * HOUR)[0] == "hours"
    assert unit_of(14 * 24 * HOUR)[0] == "days"
    assert unit_of(0.5)[0] == "seconds"
