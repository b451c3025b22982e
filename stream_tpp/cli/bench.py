"""`stream-tpp bench`: speed, measured on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_tpp.cli import bench_stream
from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import DRAFT_LENGTH, THREADS
from stream_tpp.cli.output import json_option, progress, show
from stream_tpp.errors import StreamTppError

if TYPE_CHECKING:
    from stream_tpp.evaluation.speed import Case
    from stream_tpp.history import History
    from stream_tpp.model.model import Model

# Histories, paths of each, events of a path: at 1,024 paths fewer events say as much.
SHAPES = ((1, 1, 100), (1, 64, 100), (16, 64, 20))
HISTORY_EVENTS = 100
PROCESSES = {"hawkes": "hawkes", "multihawkes": "multivariate_hawkes"}
ENCODERS = ("thp", "sahp", "attnhp")
_MODES = ("joint", "sequential", "hierarchical", "block")


@click.group()
def command() -> None:
    """Measure speed on this machine."""


command.add_command(bench_stream.command)


@command.command(epilog="Example: stream-tpp bench sampler events.csv --encoder thp --json")
@log_argument(default="flights")
@click.option("--model", type=click.Path(path_type=Path), help="Measure this model alone, on LOG.")
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    default=Path.home() / ".cache" / "stream-tpp" / "models",
    help="Where trained models are kept: a second run only measures.",
)
@click.option("--encoder", "encoders", type=click.Choice(ENCODERS), multiple=True, default=ENCODERS, help="May be repeated.")
@click.option("--full", is_flag=True, help="Flights beside LOG, and models trained for 150 s instead of 95.")
@click.option("--layers", type=click.IntRange(1), default=20, show_default=True, help="Of the targets that are trained.")
@click.option("--train-seconds", type=click.FloatRange(min=1), help="For target and draft of each model.  [default: 95]")
@click.option("--draft-length", type=DRAFT_LENGTH, help="The same in every row.  [default: the fastest of a sweep, row by row]")
@click.option("--mode", type=click.Choice(_MODES), default="joint", help="How drafted events are verified.")
@click.option("--events", type=click.IntRange(1), help="Events of each path.  [default: 100; 20 for 16 x 64 paths]")
@click.option("--repeats", type=click.IntRange(1), default=5, help="All samplers run in turn so many times; medians count.")
@click.option("--threads", type=THREADS, help="CPU threads.")
@json_option
def sampler(
    log: Log,
    model: Path | None,
    models: Path,
    encoders: tuple[str, ...],
    full: bool,
    layers: int,
    train_seconds: float | None,
    draft_length: int | None,
    mode: str,
    events: int | None,
    repeats: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Speculative sampling against autoregression, on Hawkes processes and on LOG (the real flights unless given).

    For each data set and encoder a target of the paper's size (20 layers, 8 heads, width 64) and its draft are trained under a
    time limit, and sampled for 1 history and 1 path, 1 history and 64 paths, 16 histories and 64 paths each. Two baselines: eager
    autoregression in PyTorch with a key-value cache, and autoregression through the same backend as speculative sampling.
    """
    import torch

    from stream_tpp.evaluation.speed import measure_speed

    if threads is not None:
        torch.set_num_threads(threads)
    seconds = train_seconds or (150.0 if full else 95.0)
    named = iter([_own(model, log)]) if model is not None else _trained(log, encoders, full, layers, seconds, models)
    count = 1 if model is not None else len(encoders) * (len(PROCESSES) + 1 + (full and log.path != "flights"))
    rows: list[dict[str, Any]] = []
    with progress("Training and measuring", count * len(SHAPES)) as done:
        for dataset, loaded, histories in named:
            for batch, paths, usual in SHAPES:
                case = _case(loaded, histories[:batch], paths, events or usual, mode)
                speed = measure_speed(case, case.best_draft_length() if draft_length is None else draft_length, repeats)
                rows.append(_row(dataset, case, batch) | asdict(speed))
                done(len(rows))
    show({"rows": rows}, _table(rows), as_json)


def _own(model: Path, log: Log) -> tuple[str, Model, list[History]]:
    from stream_tpp.logs.histories import gather_histories
    from stream_tpp.model.checkpoint import load

    loaded = load(model)
    histories = sorted(gather_histories(log.events(), loaded.types).histories.values(), key=len, reverse=True)
    needed = max(batch for batch, _, _ in SHAPES)
    if len(histories) < needed:
        raise StreamTppError(
            f"{log.path} has {len(histories)} entities of known types; the benchmark takes {needed}: give a longer log."
        )
    return Path(log.path).name, loaded, histories[:needed]


def _trained(
    log: Log, encoders: tuple[str, ...], full: bool, layers: int, seconds: float, folder: Path
) -> Iterator[tuple[str, Model, list[History]]]:
    from stream_tpp.evaluation.trained import logged, simulated, trained
    from stream_tpp.logs import read_log
    from stream_tpp.model.config import TargetConfig

    datasets = [simulated(name, process) for name, process in PROCESSES.items()]
    datasets.append(logged(Path(log.path).name, log.events()))
    if full and log.path != "flights":
        datasets.append(logged("flights", read_log("flights")))
    for data in datasets:
        histories = data.test_histories(max(batch for batch, _, _ in SHAPES), HISTORY_EVENTS)
        for encoder in encoders:
            target = TargetConfig(1, encoder=encoder, layers=layers, heads=8, d_model=64, components=64)  # type: ignore[arg-type]
            yield data.name, trained(data, target, seconds, folder), histories


def _case(model: Model, histories: list[History], paths: int, events: int, mode: str) -> Case:
    from stream_tpp.evaluation.speed import Case

    return Case(model, histories, paths, events, mode)


def _row(dataset: str, case: Case, batch: int) -> dict[str, Any]:
    target, draft = case.model.config.target, case.model.config.draft
    return {
        "dataset": dataset,
        "encoder": target.encoder,
        "layers": target.layers,
        "draft": draft.kind,
        "mode": case.mode,
        "batch": batch,
        "paths": case.paths,
        "events": case.events,
        "device": case.model.device.type,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    head = (
        "data         encoder  histories x paths  gamma  accepted  events/pass  eager events/s  autoregr. events/s  "
        "speculative events/s  over eager  over autoregr."
    )
    lines = (
        f"{row['dataset'][:11]:<11}  {row['encoder']:<7}  {row['batch']:>9} x {row['paths']:<5}  {row['draft_length']:>5}  "
        f"{row['acceptance']:>8.2f}  {row['events_per_target_pass']:>11.2f}  {row['eager_autoregressive_events_per_s']:>14.0f}  "
        f"{row['autoregressive_events_per_s']:>18.0f}  {row['speculative_events_per_s']:>20.0f}  "
        f"{row['speedup_over_eager']:>10.1f}  {row['speedup']:>14.2f}"
        for row in rows
    )
    return "\n".join((head, *lines))
