"""`stream-tpp sample`: simulated futures of the entities of a log."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import DraftLength, Finite
from stream_tpp.cli.output import json_option, progress, show
from stream_tpp.errors import StreamTppError

if TYPE_CHECKING:
    from stream_tpp.history import History
    from stream_tpp.model.model import Model
    from stream_tpp.sampling.futures import Futures, Stats
    from stream_tpp.sampling.plan import Plan

_BATCH = 16
_MODES = ("joint", "sequential", "hierarchical", "block")
_DRAFT_LENGTH = (
    "Events drafted for each pass of the target: 0 (none) to 64, or a policy that chooses it for each batch (acceptance, "
    "throughput, utilisation). A policy's choice depends on what ran before, so the same seed may give other futures of the "
    "same law."
)


@click.command(epilog="Example: stream-tpp sample models/mine events.csv --horizon 3600 --paths 64 --seed 1 --json")
@click.argument("model", type=click.Path(path_type=Path))
@log_argument(entity_option="")
@click.option("--horizon", type=Finite(0, min_open=True), required=True, metavar="SECONDS", help="How far ahead.")
@click.option("--paths", type=click.IntRange(1), default=64, help="Futures of each entity.")
@click.option("--seed", type=int, default=0, help="The same seed gives an entity the same futures.")
@click.option("--entity", "entities", multiple=True, metavar="NAME", help="Of this entity alone; may be given again.")
@click.option("--now", metavar="TIME", help="Forecast from here: later events are left out  [default: each one's last event]")
@click.option("--max-events", type=click.IntRange(1), default=1000, help="A path ends after so many events.")
@click.option("--sampler", type=click.Choice(["speculative", "autoregressive"]), default="speculative")
@click.option("--mode", type=click.Choice(_MODES), default="joint", help="How drafted events are verified.")
@click.option("--draft-length", type=DraftLength(), default=4, help=_DRAFT_LENGTH)
@json_option
def command(
    model: Path,
    log: Log,
    horizon: float,
    paths: int,
    seed: int,
    entities: tuple[str, ...],
    now: str | None,
    max_events: int,
    sampler: str,
    mode: str,
    draft_length: int | str,
    as_json: bool,
) -> None:
    """Simulate what may happen next to the entities of LOG, by MODEL (a folder that `stream-tpp fit` wrote)."""
    from stream_tpp.logs.histories import gather_histories
    from stream_tpp.model.checkpoint import load
    from stream_tpp.sampling.draft_length import policy, sample_by
    from stream_tpp.sampling.futures import Stats
    from stream_tpp.sampling.plan import Plan

    loaded = load(model)
    at = None if now is None else log.seconds(now)
    histories, unknown = gather_histories(log.events(), loaded.types, at)
    if unknown:
        click.echo(f"{unknown} events of types that the model doesn't know were left out.", err=True)
    chosen = _choose(histories, entities, log.path)
    drafted = draft_length if sampler == "speculative" else 0
    by = policy(drafted, loaded.device) if isinstance(drafted, str) else drafted
    plan = Plan(paths=paths, horizon=horizon, max_events=max_events, mode=mode)
    stats, rows = Stats(), []
    lengths: Counter[int] = Counter()

    def run(batch: dict[str, History], plan: Plan) -> Futures:
        lengths[plan.draft_length] += 1
        return _sample(loaded, batch, plan, seed, at)

    with progress("Sampling", len(chosen)) as done:
        for first in range(0, len(chosen), _BATCH):
            batch = dict(chosen[first : first + _BATCH])
            futures = sample_by(by, plan, len(batch) * paths, loaded.device, partial(run, batch))
            stats.add(futures.stats)
            rows += _rows(loaded, batch, futures, at)
            done(len(rows))
    cost = {
        "target_passes": stats.target_passes,
        "events": stats.events,
        "acceptance": stats.acceptance,
        "batches_by_draft_length": {str(length): lengths[length] for length in sorted(lengths)},
    }
    show({"entities": rows, "stats": cost}, _text(rows, stats, horizon), as_json)


def _choose(histories: dict[str, History], entities: tuple[str, ...], path: str) -> list[tuple[str, History]]:
    if not histories:
        raise StreamTppError(f"{path} has no event of a type that the model knows (before now): check the log and --type.")
    missing = [name for name in entities if name not in histories]
    if missing:
        raise StreamTppError(
            f"{path} has no event of entity {missing[0]!r} (before now): check the name and the entity's column."
        )
    return [(name, histories[name]) for name in entities] if entities else list(histories.items())


def _sample(model: Model, batch: dict[str, History], plan: Plan, seed: int, now: float | None) -> Futures:
    from stream_tpp.sampling.sampler import sample

    return sample(
        model.target,
        model.draft,
        list(batch.values()),
        plan,
        scale=model.scale,
        types=len(model.types),
        window=model.window,
        seeds=[_seed(seed, entity) for entity in batch],
        now=[now] * len(batch),
        device=model.device,
    )


def _seed(seed: int, entity: str) -> int:
    """An entity's own seed, so that its futures are the same whichever other entities are asked for."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{entity}".encode(), digest_size=8).digest())


def _rows(model: Model, batch: dict[str, History], futures: Futures, now: float | None) -> list[dict[str, Any]]:
    rows = []
    for row, (entity, history) in enumerate(batch.items()):
        paths = []
        for times, types, length in zip(futures.times[row], futures.types[row], futures.lengths[row].tolist(), strict=True):
            paths.append({"times": times[:length].tolist(), "types": [model.types[k] for k in types[:length].tolist()]})
        rows.append({"entity": entity, "now": float(history.times[-1]) if now is None else now, "paths": paths})
    return rows


def _text(rows: list[dict[str, Any]], stats: Stats, horizon: float) -> str:
    lines = []
    for row in rows:
        counts = [len(path["times"]) for path in row["paths"]]
        first = sorted(path["times"][0] - row["now"] for path in row["paths"] if path["times"])
        soon = f"; the next one after {first[len(first) // 2]:.6g} s in half of the futures that have one" if first else ""
        lines.append(f"{row['entity']}: {sum(counts) / len(counts):.2f} events expected within {horizon:g} s{soon}")
    lines.append(
        f"{stats.events} events in {stats.target_passes} target passes, {stats.events_per_target_pass:.2f} a pass and path, "
        f"{stats.acceptance:.0%} of the drafted events stood."
    )
    return "\n".join(lines)
