"""`stream-tpp fit`: a model from a log."""

from __future__ import annotations

import logging
import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import SEED, THREADS, Finite
from stream_tpp.cli.output import json_option, show
from stream_tpp.model.config import DraftConfig, DraftName, EncoderName, HeadName, Spacing, TargetConfig, TimeEncoding

if TYPE_CHECKING:
    from stream_tpp.training.fit import Fitted

_DAY = 86_400.0
_CYCLES = {"hour": 3_600.0, "day": _DAY, "week": 7 * _DAY}


class Cycle(click.ParamType):
    """A period: hour, day, week, or seconds."""

    name = "period"

    def convert(self, value: object, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = _CYCLES.get(str(value)) or float(str(value))
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is none of {', '.join(_CYCLES)} and no positive number of seconds.", parameter, ctx)
        return seconds


class Recorded(click.Command):
    """Keeps the words it was called with, so that the model can name the command that made it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=Recorded, epilog="Example: stream-tpp fit events.csv --out models/mine --cycle day --cycle week")
@log_argument()
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the model.")
@click.option("--encoder", type=click.Choice(get_args(EncoderName)), default="thp", help="The target's Transformer.")
@click.option("--head", type=click.Choice(get_args(HeadName)), default="mixture", help="Log-normal mixture, or bins of time.")
@click.option("--bins", type=click.IntRange(50, 200), default=TargetConfig.bins, help="Of a binned head, at most.")
@click.option("--spacing", type=click.Choice(get_args(Spacing)), default="quantile", help="Bins of equal mass or equal width.")
@click.option("--time-encoding", type=click.Choice(get_args(TimeEncoding)), default="sinusoidal", help="How time enters it.")
@click.option("--cycle", "cycles", type=Cycle(), multiple=True, help="Show the model the phase of hour, day, week or seconds.")
@click.option("--layers", type=click.IntRange(1), default=TargetConfig.layers, help="Layers of the target.")
@click.option("--heads", type=click.IntRange(1), default=TargetConfig.heads, help="Attention heads of the target.")
@click.option("--d-model", type=click.IntRange(2), default=TargetConfig.d_model, help="Width of the target.")
@click.option("--feedforward", type=click.IntRange(1), help="Width of its feed-forward parts  [default: 4 times d-model]")
@click.option("--components", type=click.IntRange(1), default=TargetConfig.components, help="Components of each mixture.")
@click.option("--dropout", type=Finite(0, 1, max_open=True), default=0.1, help="In training the target.")
@click.option("--draft", type=click.Choice(get_args(DraftName)), default="anchored", help="Kind of draft.")
@click.option("--draft-d-model", type=click.IntRange(1), default=DraftConfig.d_model, help="Width of the draft.")
@click.option("--distill/--no-distill", default=True, help="Train the draft on the target's law, or on the data.")
@click.option("--simulated", type=click.FloatRange(0, 1), default=0.0, help="Share of its histories that the model continues.")
@click.option("--window", type=click.IntRange(2), default=128, help="Events of history that the model reads.")
@click.option("--until", metavar="TIME", help="Learn from events before this time alone, test on those after it.")
@click.option("--epochs", type=click.IntRange(1), default=40, help="Passes over the log for the target, at most.")
@click.option("--draft-epochs", type=click.IntRange(1), default=15, help="Passes for the draft, at most.")
@click.option("--batch-size", type=click.IntRange(1), default=32, help="Crops of `window` events in a step.")
@click.option("--learning-rate", type=Finite(0, min_open=True), default=2e-3, help="AdamW's, at its highest.")
@click.option("--time-limit", type=Finite(1), metavar="SECONDS", help="Stop training after so long.")
@click.option("--threads", type=THREADS, help="CPU threads; weights are the same for the same number.")
@click.option("--recompute", is_flag=True, help="Less memory for long windows and large batches, more time.")
@click.option("--seed", type=SEED, default=0, help="Of weights, crops and draws.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, log: Log, out: Path, until: str | None, threads: int | None, as_json: bool, **options: Any
) -> None:
    """Train a target and its draft on LOG, and report what they are worth on events they were not trained on.

    LOG is .jsonl, .csv, .parquet, EasyTPP's .json or .pkl, .xes (each also .gz), or the word flights: the real flights of 2013.
    Without --until, a tenth of the entities is kept for the test (of the time, where there are few entities).
    """
    logging.getLogger("stream_tpp.training").setLevel(logging.INFO)
    import torch

    from stream_tpp.model.checkpoint import made, save
    from stream_tpp.training.data import split_log
    from stream_tpp.training.fit import fit

    if threads is not None:
        torch.set_num_threads(threads)
    made(out)  # before training, which may take hours
    recipe = _recipe(**options)
    split = split_log(log.events(), None if until is None else log.seconds(until), recipe.seed)
    fitted = fit(split, recipe)
    fitted.model.facts = _facts(ctx.meta["words"], fitted, recipe.seed, split.left_out)
    save(fitted.model, out)
    document = {
        "model": str(out),
        "train_nll": fitted.train_nll,
        "test_nll": fitted.test_nll,
        "acceptance": fitted.acceptance,
        "seconds": fitted.seconds,
        "baselines": fitted.baselines,
        "version": fitted.model.version,
    }
    show(document, _text(document, fitted), as_json)


def _recipe(
    encoder: EncoderName,
    head: HeadName,
    bins: int,
    spacing: Spacing,
    time_encoding: TimeEncoding,
    cycles: tuple[float, ...],
    layers: int,
    heads: int,
    d_model: int,
    feedforward: int | None,
    components: int,
    dropout: float,
    draft: DraftName,
    draft_d_model: int,
    distill: bool,
    window: int,
    epochs: int,
    draft_epochs: int,
    batch_size: int,
    learning_rate: float,
    time_limit: float | None,
    seed: int,
    recompute: bool,
    simulated: float,
) -> Any:
    from stream_tpp.training.fit import Recipe
    from stream_tpp.training.optimise import Schedule

    target = TargetConfig(
        types=1,
        encoder=encoder,
        layers=layers,
        heads=heads,
        d_model=d_model,
        feedforward=feedforward or 4 * d_model,
        components=components,
        time_encoding=time_encoding,
        cycles=cycles,
        dropout=dropout,
        head=head,
        bins=bins,
        spacing=spacing,
    )
    return Recipe(
        target,
        DraftConfig(kind=draft, d_model=draft_d_model, components=components),
        window,
        batch_size,
        Schedule(epochs=epochs, learning_rate=learning_rate),
        Schedule(epochs=draft_epochs, learning_rate=learning_rate, patience=4),
        distill,
        time_limit,
        seed,
        recompute,
        simulated,
    )


def _facts(words: list[str], fitted: Fitted, seed: int, left_out: int) -> dict[str, Any]:
    import torch

    return {
        "command": shlex.join(["stream-tpp", "fit", *words]),
        "seed": seed,
        "train_nll": round(fitted.train_nll, 4),
        "test_nll": round(fitted.test_nll, 4),
        "acceptance": round(fitted.acceptance, 4),
        "baselines": {name: round(nll, 4) for name, nll in fitted.baselines.items()},
        "unit": "nats per event, gaps in seconds",
        "events_of_unknown_type": left_out,
        "seconds": round(fitted.seconds),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
    }


def _text(document: dict[str, Any], fitted: Fitted) -> str:
    beside = ", ".join(f"{name.replace('_', ' ')} {nll:.3f}" for name, nll in fitted.baselines.items())
    return (
        f"Model {document['version']} written to {document['model']} after {fitted.seconds:.0f} s.\n"
        f"Negative log likelihood, nats an event: {fitted.test_nll:.3f} on the test part ({beside}), {fitted.train_nll:.3f} on "
        f"the training part.\nThe draft covers {fitted.acceptance:.1%} of the target's law."
    )
