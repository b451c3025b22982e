"""What a demo run came to: the figures, the summary for a terminal, and the report, all made of what lies on the topics."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stream_tpp.cli.demo_flights import DAY, FORECAST_HORIZON, QUESTION, RULE, Flights
from stream_tpp.cli.demo_run import EMBEDDED, LOAD, Run
from stream_tpp.evaluation.outcomes import Alert, Outcomes, Scored, judge
from stream_tpp.evaluation.plots import Fan, Track
from stream_tpp.evaluation.report import Fact, Group, Report, duration, percent
from stream_tpp.event import Event
from stream_tpp.topologies.ledger import Audit, Entry, latency

TYPES = ("on_time", "late", "very_late", "cancelled")
TRACKS = 4
MOST_FUTURES = 24
FAN_FROM = DAY / 2


@dataclass
class Said:
    """What the topics say of the rule: scores and alerts by entity, forecasts with futures by entity and time."""

    scores: defaultdict[str, list[Scored]] = field(default_factory=lambda: defaultdict(list))
    alerts: defaultdict[str, list[Alert]] = field(default_factory=lambda: defaultdict(list))
    forecasts: dict[tuple[str, float], bytes] = field(default_factory=dict)
    model: str = ""

    def all_scores(self) -> list[Scored]:
        return [scored for scores in self.scores.values() for scored in scores]

    def all_alerts(self) -> list[Alert]:
        return [alert for alerts in self.alerts.values() for alert in alerts]


@dataclass(frozen=True)
class Result:
    """A finished run, judged."""

    run: Run
    flights: Flights
    account: Audit
    said: Said
    outcomes: Outcomes

    @classmethod
    def of(cls, run: Run) -> Result:
        said, flights = said_in(run.entries), run.flights
        outcomes = judge(RULE, said.all_scores(), said.all_alerts(), flights.known, flights.since, flights.until + RULE.horizon)
        return cls(run, flights, run.ledger.audit(), said, outcomes)

    @property
    def acceptance(self) -> float:
        """Share of the drafted events that stood, over all that the worker sampled."""
        return self._ratio("accepted", "drafted")

    @property
    def events_per_target_pass(self) -> float:
        """Events that one pass of the target gave a path."""
        return self._ratio("events", "row_passes")

    def _ratio(self, counted: str, among: str) -> float:
        metrics = self.run.metrics
        whole = metrics.get(f"stream_tpp_sampler_{among}_total", 0.0)
        return metrics.get(f"stream_tpp_sampler_{counted}_total", math.nan) / whole if whole else math.nan

    @property
    def sound(self) -> bool:
        """All that was published is on the topics, and accounted for."""
        return self.account.sound and self.account.events_in >= self.run.published

    def latency(self, quantile: float) -> float:
        """Seconds, of the judged days: in the warm-up all events wait at once."""
        return latency(self.account, quantile, self.run.judged_from)


def said_in(entries: Iterable[Entry]) -> Said:
    """Reads each record once, the first of its id; alerts are raised and cleared in their order."""
    said = Said()
    seen: set[str] = set()
    for entry in entries:
        if entry.role in ("events", "dead_letters"):
            continue
        record = orjson.loads(entry.value or b"null")
        if record["id"] in seen:
            continue
        seen.add(record["id"])
        if entry.role == "forecasts":
            said.forecasts[record["entity"], record["made_at"]] = entry.value or b""
            said.model = record["model"]
        elif entry.role == "warnings":
            said.scores[record["entity"]].append(Scored(record["entity"], record["made_at"], record["score"]))
        elif record["state"] == "raised":
            said.alerts[record["entity"]].append(Alert(record["entity"], record["at"], record["score"]))
        else:
            alerts = said.alerts[record["entity"]]
            alerts[-1] = replace(alerts[-1], cleared=record["at"])
    return said


def document(result: Result, report: str) -> dict[str, Any]:
    """The figures as --json prints them."""
    account, outcomes = result.account, result.outcomes
    return {
        "events_in": account.events_in,
        "processed": account.processed,
        "dead_lettered": account.dead_lettered,
        "lost": account.lost,
        "duplicated": account.duplicated,
        "contradictory": account.contradictory,
        "forecasts": account.forecasts,
        "warnings": account.warnings,
        "alerts_raised": account.alerts_raised,
        "alerts_judged": len(outcomes.verdicts),
        "alerts_hit": outcomes.hits,
        "precision": outcomes.precision,
        "base_rate": outcomes.base_rate,
        "alarms": outcomes.alarms,
        "alarms_foreseen": outcomes.foreseen,
        "auroc": outcomes.auroc,
        "median_lead_s": outcomes.median_lead,
        "acceptance": result.acceptance,
        "events_per_target_pass": result.events_per_target_pass,
        "latency_ms": {"p50": 1000 * result.latency(0.5), "p99": 1000 * result.latency(0.99)},
        "events_per_s": result.run.capacity,
        "dead_letter_reasons": dict(account.reasons),
        "model": result.said.model,
        "broker": result.run.broker,
        "report": report,
    }


def summary(result: Result, report: str) -> RenderableType:
    """The figures for a terminal."""
    rows = Table.grid(padding=(0, 3, 0, 0))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    for name, said in _sentences(result).items():
        rows.add_row(name, Text(said))
    faults = [Text(fault, "red") for fault in result.account.faults]
    if result.account.events_in < result.run.published:
        faults.append(Text(f"{result.run.published:,} events were published, and not all are on their topic.", "red"))
    return Lines("", rows, *faults, Text.assemble(("Report     ", "bold"), report))


def _sentences(result: Result) -> dict[str, str]:
    """The summary, a paragraph to each part."""
    account, outcomes, run = result.account, result.outcomes, result.run
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(account.reasons.items()))
    lead = f" Median lead {duration(outcomes.median_lead)}." if outcomes.hits else ""
    broker = "an embedded broker" if run.broker == EMBEDDED else f"Kafka at {run.broker}, where its topics remain"
    return {
        "Accounts": f"{_accounts(account)} Counted from the topics. Dead letters: {reasons or 'none'}.",
        "Alerts": f"{account.alerts_raised:,} raised. {len(outcomes.verdicts):,} are judged: after {outcomes.hits} of them "
        f"({percent(outcomes.precision)}) {QUESTION} followed within {duration(RULE.horizon)}, against "
        f"{percent(outcomes.base_rate, 1)} after any departure.{lead} Of {outcomes.alarms} such departures "
        f"{outcomes.foreseen} came under a standing alert.",
        "Forecasts": f"{account.forecasts:,}, each of {run.settings.forecasts.paths} simulated futures, and {account.warnings:,} "
        f"warnings. {_calibrated(outcomes)}",
        "Sampling": f"{percent(result.acceptance)} of the drafted events were accepted: "
        f"{result.events_per_target_pass:.2f} events per target pass.",
        "Latency": f"{duration(result.latency(0.5))} from event to forecast (p50), {duration(result.latency(0.99))} (p99), "
        f"{_pace(result)}",
        "Replayed": f"{_replayed(result)} {_judged(result)} Through {broker}.",
    }


def report_of(result: Result) -> Report:
    """The page."""
    fan, fan_choice = _fan(result)
    return Report(
        title="Early warnings on real flights",
        lead=f"{_replayed(result)} A worker simulated what each aircraft would do next, and warned of {QUESTION}.",
        question=QUESTION,
        rule=RULE,
        types=TYPES,
        outcomes=result.outcomes,
        groups=_groups(result),
        tracks=_tracks(result),
        choice=f"The {TRACKS} aircraft with the highest scores, whether right or wrong.",
        fan=fan,
        fan_choice=fan_choice,
        notes=_notes(result),
        sound=result.sound,
        accounts=f"{_accounts(result.account)} Counted from the topics by an auditor that asks the worker nothing.",
        footer=f"Made by stream-tpp demo, {datetime.now():%d %B %Y, %H:%M}; model {result.said.model}.",
    )


def _accounts(account: Audit) -> str:
    return (
        f"{account.events_in:,} events came in: {account.processed:,} processed + {account.dead_lettered:,} dead-lettered. "
        f"Lost {account.lost}, duplicated {account.duplicated}, contradictory {account.contradictory}."
    )


def _calibrated(outcomes: Outcomes) -> str:
    said = sum(each.count * each.mean_score for each in outcomes.bins) / max(outcomes.forecasts, 1)
    return (
        f"The scores of the judged days say {percent(said, 1)} on average, and {percent(outcomes.base_rate, 1)} came true. One "
        f"that came true is above one that did not {percent(outcomes.auroc)} of the time (AUROC; 50% is chance)."
    )


def _pace(result: Result) -> str:
    flights, run = result.flights, result.run
    rate = len(flights.judged) / (flights.until - flights.since) * run.speed
    return (
        f"with {rate:.0f} events a second on average, paced so that the busiest hours come at {LOAD:.0%} of the "
        f"{run.capacity:.0f} a second that the worker reached on the warm-up."
    )


def _replayed(result: Result) -> str:
    flights = result.flights
    first = flights.known[0].time
    return (
        f"{flights.total:,} real departures from New York of the {flights.aircraft} most active aircraft, {_day(first)} to "
        f"{_day(flights.until - 1)}, were replayed {result.run.speed:,.0f} times as fast as they were."
    )


def _judged(result: Result) -> str:
    flights = result.flights
    return (
        f"The {len(flights.warm_up):,} before {_day(flights.since)} only fill histories, as fast as the worker takes them, and "
        f"are not judged; the model learned from flights before that day. The {len(flights.judged):,} from then on it had never "
        "seen."
    )


def _groups(result: Result) -> list[Group]:
    return [
        Group("Accounts", _account_facts(result.account)),
        Group("Warnings", _warning_facts(result)),
        Group("Speed", _speed_facts(result)),
    ]


def _account_facts(account: Audit) -> list[Fact]:
    return [
        Fact("Events in", f"{account.events_in:,}", "Records on the events topic, broken ones among them."),
        Fact("Processed", f"{account.processed:,}", "Events with a forecast and a warning."),
        Fact("Dead-lettered", f"{account.dead_lettered:,}", _dead_letters(account.reasons)),
        Fact("Lost", f"{account.lost:,}", "Records that should be on a topic and are not."),
        Fact("Duplicated", f"{account.duplicated:,}", "Records that are there twice."),
        Fact("Contradictory", f"{account.contradictory:,}", "Records that say different things of the same event."),
    ]


def _warning_facts(result: Result) -> list[Fact]:
    account, outcomes, paths = result.account, result.outcomes, result.run.settings.forecasts.paths
    foreseen = f"{outcomes.foreseen:,} of {outcomes.alarms:,}"
    return [
        Fact("Forecasts", f"{account.forecasts:,}", f"Each of {paths} simulated futures of an aircraft."),
        Fact("Warnings", f"{account.warnings:,}", "Scores: one for each forecast and rule."),
        Fact("Alerts raised", f"{account.alerts_raised:,}", "Times that a score reached the threshold, in the warm-up too."),
        Fact("Alerts judged", f"{len(outcomes.verdicts):,}", "Those raised in the days that the model had not learned from."),
        Fact("Right", f"{outcomes.hits:,}", f"Judged alerts after which {QUESTION} followed in time."),
        Fact("Precision", percent(outcomes.precision), "The share of judged alerts that were right."),
        Fact("Base rate", percent(outcomes.base_rate, 1), "What that share would be for alerts raised at random."),
        Fact("Median lead", duration(outcomes.median_lead), "Half of the right alerts came so long before the event, or longer."),
        Fact("Foreseen", foreseen, "Very late or cancelled departures before which an alert stood."),
        Fact("AUROC", percent(outcomes.auroc), "How often a score that came true is above one that did not; 50% is chance."),
    ]


def _speed_facts(result: Result) -> list[Fact]:
    per_pass = f"{result.events_per_target_pass:.2f}"
    return [
        Fact("Acceptance", percent(result.acceptance), "Share of events proposed by a small model that the large one let stand."),
        Fact("Events per target pass", per_pass, "Events that one run of the large model yields; it would be 1 without a draft."),
        Fact("Latency, median", duration(result.latency(0.5)), "From an event's time stamp in Kafka to its forecast's."),
        Fact("Latency, 99%", duration(result.latency(0.99)), "All but one in a hundred forecasts came within this."),
        Fact("Throughput", f"{result.run.capacity:.0f}/s", "Events a second that the worker did when all of them waited."),
    ]


def _dead_letters(reasons: Mapping[str, int]) -> str:
    listed = ", ".join(f"{reason.replace('_', ' ')} {count}" for reason, count in sorted(reasons.items()))
    return f"Records that are no events, kept with the reason: {listed}." if listed else "Records that are no events."


def _notes(result: Result) -> list[str]:
    return [
        "An event is a departure from New York; what an aircraft does elsewhere is not in the data. The model reads nothing but "
        "the times and types of an aircraft's own departures: no weather, no season, no other aircraft. So it says what is usual "
        "over the year that it learned from, and too much in a calm autumn.",
        _calibrated(result.outcomes),
        _judged(result),
        f"Latency was measured {_pace(result)}",
        f"The rule (alarm, horizon {duration(RULE.horizon)}, threshold {percent(RULE.threshold)}) was chosen on flights before "
        "those that are judged.",
    ]


def _tracks(result: Result) -> list[Track]:
    """Of the aircraft with the highest scores in the judged days."""
    flights, said = result.flights, result.said
    highest = {
        entity: max((scored.score for scored in scores if scored.at >= flights.since), default=0.0)
        for entity, scores in said.scores.items()
    }
    chosen = sorted(highest, key=lambda entity: (-highest[entity], entity))[:TRACKS]
    events = [event for event in flights.known if event.time < flights.until]
    return [
        Track(
            entity,
            [scored.at for scored in said.scores[entity]],
            [scored.score for scored in said.scores[entity]],
            [event for event in events if event.entity == entity],
            said.alerts[entity],
        )
        for entity in chosen
    ]


def _fan(result: Result) -> tuple[Fan | None, str]:
    """Of the aircraft with the most departures in the warm-up: its first forecast half a day into the judged days, or later."""
    flights, forecasts = result.flights, result.said.forecasts
    departures = Counter(event.entity for event in flights.warm_up)
    for entity, _ in sorted(departures.items(), key=lambda item: (-item[1], item[0])):
        times = [at for name, at in forecasts if name == entity and at >= flights.since + FAN_FROM]
        if times:
            at = min(times)
            break
    else:
        return None, ""
    futures = [
        [Event(entity, time, type) for time, type in zip(future["times"], future["types"], strict=True)]
        for future in orjson.loads(forecasts[entity, at])["futures"][:MOST_FUTURES]
    ]
    came = [event for event in flights.known if event.entity == entity and at < event.time <= at + FORECAST_HORIZON]
    chosen = "The aircraft with the most departures in the warm-up, chosen without a look at what came."
    return Fan(entity, at, FORECAST_HORIZON, futures, came), chosen


def _day(time: float) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return f"{moment.day} {moment:%B %Y}"
