"""`stream-tpp replay`: a log into a topic."""

from __future__ import annotations

import asyncio
import dataclasses
import math

import click

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.output import json_option, progress, show


class Speed(click.ParamType):
    """`max`, or how many seconds of the log pass in one of ours."""

    name = "max|factor"

    def convert(self, value: object, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            speed = math.inf if value == "max" else float(str(value))
        except ValueError:
            speed = math.nan
        if not speed > 0:
            self.fail(f"{value!r} is neither max nor a number above 0.", parameter, ctx)
        return speed


@click.command(epilog="Example: stream-tpp replay events.csv --entity device --time at --time-unit ms --topic events --speed 60")
@log_argument()
@click.option("--topic", required=True, help="Topic to publish to; made where it is missing.")
@click.option("--broker", metavar="HOST:PORT", help="Kafka's bootstrap servers  [default: from the settings]")
@click.option("--speed", type=Speed(), default="max", help="Seconds of the log in one of ours, or max: without waiting.")
@click.option("--from", "start", metavar="TIME", help="Leave out events before this time (a number as in LOG, or ISO 8601).")
@click.option("--to", "end", metavar="TIME", help="Leave out events at this time and after it.")
@click.option("--config", type=click.Path(dir_okay=False), help="Settings (TOML): how to reach Kafka, partitions.")
@json_option
def command(
    log: Log,
    topic: str,
    broker: str | None,
    speed: float,
    start: str | None,
    end: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Publish LOG to Kafka in the order of its events' times, each record keyed by its entity.

    LOG is .jsonl, .csv, .parquet, EasyTPP's .json or .pkl, .xes (each also .gz), or the word flights: the real flights of 2013.
    """
    first = -math.inf if start is None else log.seconds(start)
    last = math.inf if end is None else log.seconds(end)
    from stream_tpp.topologies.replay import publish
    from stream_tpp.topologies.settings import load

    settings = load(config)
    connection = dataclasses.replace(settings.kafka, bootstrap_servers=broker) if broker else settings.kafka
    events = [event for event in log.events() if first <= event.time < last]
    with progress(f"Publishing to {topic}", len(events)) as done:
        published = asyncio.run(publish(events, topic, connection, speed, settings.topics.partitions, done))
    show(
        dataclasses.asdict(published),
        f"{published.events:,} events published to {topic} in {published.seconds:.1f} s.",
        as_json,
    )
