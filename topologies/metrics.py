"""What a worker counts, in Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.sampling.futures import Stats
from stream_tpp.sampling.prefixes import Prefixes
from stream_tpp.topologies.health import Health, Partition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The counters that count one thing each: the metric's name, the field of Counters, what it counts.
COUNTS = (
    ("events", "events_in", "Events read, those delivered again included."),
    ("events_processed", "processed", "Events whose outputs were handed to the outbox, repeats and conflated ones among them."),
    ("events_redelivered", "redelivered", "Events delivered again, whose outputs were written again under the same ids."),
    ("events_repeated", "repeats", "Events that repeat the id of an earlier one, and were passed over."),
    ("events_conflated", "conflated", "Events whose forecast stands in a newer one of their entity: the sampler was behind."),
    ("events_dropped", "dropped", "Events that a rebalance took from this worker midway; they are delivered again."),
    ("forecasts", "forecasts", "Forecasts made."),
    ("warnings", "warnings", "Warnings made."),
    ("warnings_read", "warnings_in", "Warnings read by the alert agent."),
    ("sampler_batches", "sampler_batches", "Micro-batches that the sampler ran."),
    ("sampler_failures", "sampler_failures", "Micro-batches that failed and were tried one event at a time."),
    ("models_taken_up", "models_taken_up", "New models that were taken up while the worker ran."),
    ("models_refused", "models_refused", "New models that were refused: damaged, or of another vocabulary."),
)

Labels: TypeAlias = tuple[tuple[str, str], ...]


# What sampling cost, as the engine adds it up: fields of its Stats.
SAMPLED = (
    ("target_passes", "Passes of the target model over a whole micro-batch."),
    ("row_passes", "Passes of the target model, counted once for each simulated path."),
    ("drafted", "Drafted events that were put to the target model."),
    ("accepted", "Drafted events that stood: accepted / drafted is the acceptance rate."),
    ("events", "Simulated events: events / row_passes is what a pass of the target model yields."),
)

# What it kept of histories from one call to the next: fields of its Prefixes.
KEPT = (
    ("hits", "Histories of which at least the beginning was known to the target model from before."),
    ("misses", "Histories that it read from their first event on."),
    ("evictions", "Histories of which it let go what it had read, for want of room."),
)


@dataclass(frozen=True)
class Metric:
    """A metric and its values, each under its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    values: Mapping[Labels, float] = field(default_factory=dict)


def render(metrics: Iterable[Metric]) -> str:
    """The metrics as Prometheus reads them."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


async def metrics(health: Health) -> list[Metric]:
    """The metrics of a worker: what it counted, how far behind it is, how it is."""
    try:
        partitions = await health.partitions()
    except TimeoutError:
        partitions = []
    live = all(sign.well for sign in await health.live())
    ready = all(sign.well for sign in await health.ready())
    return [
        *_counted(health.plugged.counters),
        *_sampled(health.plugged.forecaster),
        *_behind(health, partitions),
        _gauge("live", "1 while the worker's parts live.", float(live)),
        _gauge("ready", "1 while the worker is ready: live, joined, tables recovered.", float(ready)),
        _gauge("rebalances", "Rebalances that this worker went through.", float(health.app.rebalancing_count)),
        Metric(
            "stream_tpp_model_info",
            "gauge",
            "The version of the model that forecasts.",
            {(("version", health.plugged.forecaster.version),): 1.0},
        ),
    ]


def _counted(counters: Counters) -> Iterator[Metric]:
    for name, counted, help in COUNTS:
        yield Metric(f"stream_tpp_{name}_total", "counter", help, {(): float(getattr(counters, counted))})
    for name, reasons, help in (
        ("dead_letters", counters.dead_lettered, "Events that became dead letters."),
        ("warnings_refused", counters.warnings_refused, "Records on the warnings topic that became dead letters."),
    ):
        by_reason: dict[Labels, float] = {(("reason", reason),): float(count) for reason, count in sorted(reasons.items())}
        yield Metric(f"stream_tpp_{name}_total", "counter", help, by_reason)
    states = {"raised": counters.alerts_raised, "cleared": counters.alerts_cleared}
    alerts: dict[Labels, float] = {(("state", state),): float(count) for state, count in states.items()}
    yield Metric("stream_tpp_alerts_total", "counter", "Alerts raised and cleared.", alerts)


def _sampled(forecaster: Forecaster) -> Iterator[Metric]:
    stats = getattr(forecaster, "stats", None)
    if isinstance(stats, Stats):
        for name, help in SAMPLED:
            yield Metric(f"stream_tpp_sampler_{name}_total", "counter", help, {(): float(getattr(stats, name))})
    prefixes = getattr(forecaster, "prefixes", None)
    if isinstance(prefixes, Prefixes):
        for name, help in KEPT:
            yield Metric(f"stream_tpp_prefix_{name}_total", "counter", help, {(): float(getattr(prefixes, name))})
        yield _gauge("prefix_bytes", "What is kept of histories that were read takes so much memory.", float(prefixes.nbytes))


def _behind(health: Health, partitions: Iterable[Partition]) -> Iterator[Metric]:
    topic = ("topic", health.plugged.events.get_topic_name())
    lag: dict[Labels, float] = {(topic, ("partition", str(partition.number))): float(partition.lag) for partition in partitions}
    yield Metric("stream_tpp_lag", "gauge", "Events whose outputs are not known to be delivered.", lag)
    yield _gauge("events_in_flight", "Events read whose outputs are not delivered yet.", float(health.in_flight))
    entities = health.plugged.histories.entities
    if entities is not None:
        yield _gauge("entities", "Entities whose histories are held, those that this worker stands by for too.", float(entities))
    last = health.plugged.counters.last_event_at
    if last is not None:
        yield _gauge("last_event_timestamp_seconds", "When the last event was read (Unix time).", last)


def _gauge(name: str, help: str, value: float) -> Metric:
    return Metric(f"stream_tpp_{name}", "gauge", help, {(): value})


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.values.items():
        shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        yield f"{metric.name}{{{shown}}} {value!r}" if shown else f"{metric.name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
