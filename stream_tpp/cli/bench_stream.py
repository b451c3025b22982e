"""`stream-tpp bench stream`: the topology against a bare Faust agent."""

from __future__ import annotations

import os
from typing import Any

import click

from stream_tpp.cli.output import json_option, show


@click.command("stream", epilog="Example: stream-tpp bench stream --broker localhost:9092 --json")
@click.option("--broker", help="host:port of a Kafka broker.  [default: KAFKA_BOOTSTRAP_SERVERS, or a broker of its own]")
@click.option("--events", type=click.IntRange(100), default=20_000, show_default=True, help="Events to pass through at once.")
@click.option("--entities", type=click.IntRange(1), default=500, show_default=True, help="Entities that they are of.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often, in turn with a bare agent.")
@click.option("--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Events a second, with sampling.")
@click.option("--seconds", type=click.FloatRange(1.0), default=30.0, show_default=True, help="How long at that rate.")
@click.option("--model", default="flights", show_default=True, help="The model that samples: a folder, or one that ships.")
@click.option("--paths", type=click.IntRange(1), default=64, show_default=True, help="Simulated futures of each forecast.")
@json_option
def command(
    broker: str | None,
    events: int,
    entities: int,
    rounds: int,
    rate: float,
    seconds: float,
    model: str,
    paths: int,
    as_json: bool,
) -> None:
    """Events a second through the early-warning topology without sampling, beside a bare Faust agent that forwards them.

    Then, with sampling at a steady rate, the time from an event to its warning. Each worker is a process of its own.
    """
    import asyncio
    import dataclasses

    from stream_tpp.cli.demo_run import broker_of
    from stream_tpp.topologies.throughput import Load, measure

    environment = dict(os.environ) | ({"KAFKA_BOOTSTRAP_SERVERS": broker} if broker else {})
    load = Load(events, entities, rounds, rate, seconds, model, paths)
    with broker_of(environment) as (settings, name):
        found = asyncio.run(measure(settings.kafka, load, settings.worker.fetch_wait))
    document = {"broker": name, **dataclasses.asdict(load), **dataclasses.asdict(found)}
    show(document, _text(document), as_json)


def _text(found: dict[str, Any]) -> str:
    latency = found["latency_ms"]
    return "\n".join(
        (
            f"bare Faust agent    {found['bare_events_per_s']:>8,.0f} events/s",
            f"the topology        {found['events_per_s']:>8,.0f} events/s, {found['ratio']:.2f} of it "
            f"({found['ratios'][0]:.2f} to {found['ratios'][-1]:.2f} in {found['rounds']} rounds), without sampling",
            f"with sampling       p50 {latency['p50']:,.0f} ms, p99 {latency['p99']:,.0f} ms from event to warning at "
            f"{found['rate']:g} events/s, {found['conflated']:.0%} conflated; {found['sampling_ms']:.1f} ms of it sampling",
            f"histories           {found['changelog_bytes_per_event']:.0f} bytes of changelog an event, "
            f"{found['bytes_per_entity']:,.0f} bytes of memory an entity",
            f"lost {found['lost']}, duplicated {found['duplicated']}",
        )
    )
