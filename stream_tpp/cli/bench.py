"""`stream-tpp bench`: speed, measured on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_tpp.cli import bench_stream
from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import THREADS
from stream_tpp.cli.output import json_option, progress, show
from stream_tpp.errors import StreamTppError
from stream_tpp.pretrained import FLIGHTS

if TYPE_CHECKING:
    from stream_tpp.history import History

SHAPES = ((1, 1), (1, 64), (16, 64))
_MODES = ("joint", "sequential", "hierarchical", "block")


@click.group()
def command() -> None:
    """Measure speed on this machine."""


command.add_command(bench_stream.command)


@command.command(epilog="Example: stream-tpp bench sampler events.csv --model models/mine --draft-length 4 --json")
@log_argument(default="flights")
@click.option("--model", type=click.Path(path_type=Path), default=FLIGHTS, show_default="the flights model", help="Its folder.")
@click.option("--draft-length", "draft_lengths", type=click.IntRange(1), multiple=True, default=(4,), help="May be repeated.")
@click.option("--mode", type=click.Choice(_MODES), default="joint", help="How drafted events are verified.")
@click.option("--events", type=click.IntRange(1), default=100, help="Events of each path.")
@click.option("--repeats", type=click.IntRange(1), default=5, help="Both samplers run in turn so many times; medians count.")
@click.option("--threads", type=THREADS, help="CPU threads.")
@json_option
def sampler(
    model: Path,
    log: Log,
    draft_lengths: tuple[int, ...],
    mode: str,
    events: int,
    repeats: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Speculative sampling by MODEL against autoregression with the same key-value cache, on the longest histories of LOG.

    For 1 history and 1 path, 1 history and 64 paths, 16 histories and 64 paths each. LOG is the real flights unless given.
    """
    import torch

    from stream_tpp.evaluation.speed import measure_speed
    from stream_tpp.model.checkpoint import load

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load(model)
    histories = _longest(log, loaded.types, max(batch for batch, _ in SHAPES))
    cases = [(batch, paths, gamma) for batch, paths in SHAPES for gamma in draft_lengths]
    target, draft = loaded.config.target, loaded.config.draft
    rows: list[dict[str, Any]] = []
    with progress("Measuring", len(cases)) as done:
        for batch, paths, gamma in cases:
            speed = measure_speed(
                loaded, histories[:batch], paths=paths, events=events, draft_length=gamma, mode=mode, repeats=repeats
            )
            rows.append(
                {
                    "dataset": Path(log.path).name,
                    "encoder": target.encoder,
                    "layers": target.layers,
                    "draft": draft.kind,
                    "mode": mode,
                    "batch": batch,
                    "paths": paths,
                    "draft_length": gamma,
                    **asdict(speed),
                    "eager_autoregressive_events_per_s": speed.autoregressive_events_per_s,
                    "speedup_over_eager": speed.speedup,
                    "backend": "eager",
                    "device": loaded.device.type,
                }
            )
            done(len(rows))
    show({"rows": rows}, _table(rows), as_json)


def _longest(log: Log, types: tuple[str, ...], count: int) -> list[History]:
    from stream_tpp.logs.histories import gather_histories

    histories = sorted(gather_histories(log.events(), types).histories.values(), key=len, reverse=True)
    if len(histories) < count:
        raise StreamTppError(
            f"{log.path} has {len(histories)} entities of known types; the benchmark takes {count}: give a longer log."
        )
    return histories[:count]


def _table(rows: list[dict[str, Any]]) -> str:
    head = "histories  paths  gamma  accepted  events/pass  autoregressive/s  speculative/s  speed-up"
    lines = (
        f"{row['batch']:>9}  {row['paths']:>5}  {row['draft_length']:>5}  {row['acceptance']:>8.2f}  "
        f"{row['events_per_target_pass']:>11.2f}  {row['autoregressive_events_per_s']:>16.0f}  "
        f"{row['speculative_events_per_s']:>13.0f}  {row['speedup']:>8.2f}"
        for row in rows
    )
    return "\n".join((head, *lines))
