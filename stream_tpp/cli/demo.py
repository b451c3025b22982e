"""`stream-tpp demo`: the main job on real flights, from a broker to a summary, by itself."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import datetime
from pathlib import Path

import click

from stream_tpp.cli.output import json_option, show


@click.command(epilog="Example: stream-tpp demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Report to write: a folder, or a file that ends in .html.  [default: runs/<date>/report.html]",
)
@click.option("--days", type=click.IntRange(1, 60), help="Days of flights to judge.  [default: 14, fewer on a slow machine]")
@json_option
@click.pass_context
def command(ctx: click.Context, out: Path | None, days: int | None, as_json: bool) -> None:
    """Replay real flights of 2013 through Kafka and a worker that warns of very late and cancelled departures.

    Starts a broker of its own, unless KAFKA_BOOTSTRAP_SERVERS names one. The model has learned from earlier flights only.
    Shows what goes on, sums it up, and writes a report with plots. Exit code 0 only if every event is accounted for.
    """
    # Imported here: `--help` needs neither Kafka nor plots.
    from rich.console import Console

    from stream_tpp.cli.demo_flights import DAYS, RULE, choose, learned_until
    from stream_tpp.cli.demo_report import Result, document, report_of, summary
    from stream_tpp.cli.demo_run import broker_of, model_folder, prepare, rehearse
    from stream_tpp.cli.live import Screen, View
    from stream_tpp.evaluation.report import write
    from stream_tpp.logs.flights import read_flights

    logging.getLogger("stream_tpp.logs").setLevel(logging.ERROR)
    page = _page(out)
    page.parent.mkdir(parents=True, exist_ok=True)
    with broker_of(os.environ) as (settings, broker):
        flights = choose(read_flights().events, learned_until(model_folder(settings)), days or DAYS)
        run = prepare(page.parent, settings, broker, flights)
        view = View("stream-tpp", f"{flights.aircraft} aircraft, broker {broker}", RULE, flights.total)
        asyncio.run(rehearse(run, Screen(view, Console(stderr=True)), cut=days is None))
    result = Result.of(run)
    write(report_of(result), page)
    if as_json:
        show(document(result, str(page)), "", as_json)
    else:
        Console().print(summary(result, str(page)))
    if not result.sound:
        ctx.exit(1)


def _page(out: Path | None) -> Path:
    if out is None:
        return Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}" / "report.html"
    return out if out.suffix == ".html" else out / "report.html"
