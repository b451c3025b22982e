"""The rows of TPP-SD's Tables 1 and 2 (arXiv 2507.09252), measured again with this engine.

python benchmarks/paper.py --models FOLDER [--taxi LOG] [--taobao LOG]
    writes benchmarks/results/paper.json row by row; python benchmarks/paper_tables.py then puts the tables into docs/paper.md

A model is trained once and kept in FOLDER: a second run only measures. Poisson, Hawkes and MultiHawkes are simulated.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray

from stream_tpp.evaluation.fidelity import compare, next_event_distance
from stream_tpp.evaluation.known_law import AgainstTruth, against_truth
from stream_tpp.evaluation.own_law import judge
from stream_tpp.evaluation.prompts import Prompt, choose_prompts
from stream_tpp.evaluation.sampled import Sampled, Sampler, next_events, sample_paths, typical_horizon
from stream_tpp.evaluation.speed import Case, measure_speed
from stream_tpp.evaluation.trained import Dataset, logged, simulated, trained
from stream_tpp.logs import read_log
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.processes import PAPER_WINDOW

RESULTS = Path(__file__).parent / "results" / "paper.json"
SIMULATED = {"Poisson": "poisson", "Hawkes": "hawkes", "MultiHawkes": "multivariate_hawkes"}
DATASETS = (*SIMULATED, "Taxi", "Taobao")
ENCODERS = ("thp", "sahp", "attnhp")
MODES = ("joint", "sequential", "hierarchical", "block")
FIRST_EVENTS = 100
OTHER_SEED = 1 << 62  # samples to be compared need seeds of their own: samplers share their random numbers


@dataclass(frozen=True)
class Plan:
    """How long to train and how much to sample. `paths` futures of about `events` events go on from each of `prompts` histories
    of at most `prompt_events`; `sequences` whole windows of the simulated processes; `draws` of the next event."""

    layers: int
    train_seconds: float
    draft_length: int
    prompts: int
    prompt_events: int
    paths: int
    events: int
    sequences: int
    draws: int
    speed_events: int
    speed_repeats: int
    seed: int


def prompts_of(data: Dataset, count: int, most: int, seed: int) -> list[Prompt]:
    """Test histories cut at random, of at most `most` events, some quiet for a while."""
    histories = {str(number): one.history for number, one in enumerate(data.split.test)}
    return [prompt.first(most) for prompt in choose_prompts(histories, count, seed)]


def next_event_prompt(data: Dataset) -> Prompt:
    """The paper's: the first 100 events of a sequence (all of the longest, where none has as many)."""
    (history,) = data.test_histories(1, FIRST_EVENTS)
    return Prompt(history, float(history.times[-1]))


def target_of(encoder: str, layers: int) -> TargetConfig:
    return TargetConfig(
        1,  # set by the data
        encoder=encoder,  # type: ignore[arg-type]
        layers=layers,
        heads=8,
        d_model=64,
        feedforward=32,  # what the paper's 430,657 parameters leave for it
        components=64,
    )


def measured(model: Model, data: Dataset, plan: Plan) -> dict[str, Any]:
    """A row: exactness in every mode, next events, the known law or the likelihoods, cost."""
    prompts = prompts_of(data, plan.prompts, plan.prompt_events, plan.seed)
    horizon = typical_horizon(model, prompts, plan.events, plan.seed)
    autoregressive = sample_paths(model, prompts, horizon, plan.paths, Sampler(0), plan.seed + OTHER_SEED)
    modes, speculative = {}, autoregressive
    for place, mode in enumerate(reversed(MODES)):  # joint, the default, last: its paths are judged below
        sampler = Sampler(plan.draft_length, mode)
        speculative = sample_paths(model, prompts, horizon, plan.paths, sampler, plan.seed + (place << 58))
        modes[mode] = _exactness(speculative, autoregressive, plan.seed)
        click.echo(f"  {mode}: {modes[mode]['js']}, p {modes[mode]['smallest_p']:.3f}")
    row: dict[str, Any] = {
        "model": model.facts,
        "horizon": horizon,
        "modes": {mode: modes[mode] for mode in MODES},
        "next_event": asdict(_next_event(model, next_event_prompt(data), plan)),
    }
    if data.process is None:
        row["likelihood"] = _likelihoods(model, prompts, autoregressive, speculative)
    else:
        samplers = {"autoregressive": Sampler(0), "speculative": Sampler(plan.draft_length)}
        row["known_law"] = {
            name: _truth(against_truth(model, data.process, PAPER_WINDOW, sampler, plan.sequences, plan.seed + (place << 60)))
            for place, (name, sampler) in enumerate(samplers.items())
        }
    history = next_event_prompt(data).history
    row["speed"] = {
        str(gamma): asdict(measure_speed(Case(model, [history], 1, plan.speed_events, "joint"), gamma, plan.speed_repeats))
        for gamma in (plan.draft_length, 4)
    }
    return row


def _exactness(speculative: Sampled, autoregressive: Sampled, seed: int) -> dict[str, Any]:
    found = compare(speculative.paths, autoregressive.paths, seed=seed, power=False)
    return {
        "js": found.js_divergence,
        "js_by_chance": found.js_by_chance,
        "smallest_p": min(test.corrected for test in found.tests),
        "passed": found.passed,
        "events": list(found.events),
        "paths": list(found.paths),
        "acceptance": speculative.stats.acceptance,
        "events_per_target_pass": speculative.stats.events_per_target_pass,
    }


def _next_event(model: Model, prompt: Prompt, plan: Plan) -> Any:
    """One event drafted: the law of the first does not depend on how many are drafted after it."""
    drawn = next_events(model, prompt, plan.draws, Sampler(1), plan.seed)
    other = next_events(model, prompt, plan.draws, Sampler(0), plan.seed + OTHER_SEED)
    return next_event_distance((drawn[0], other[0]), (drawn[1], other[1]), seed=plan.seed)


def _likelihoods(model: Model, prompts: list[Prompt], autoregressive: Sampled, speculative: Sampled) -> dict[str, Any]:
    """The paper's delta L where no truth is known: mean log likelihoods of the two samplers' paths, by the model."""
    first, second = (judge(model, prompts, one.paths, one.complete).log_likelihood for one in (autoregressive, speculative))
    return {
        "autoregressive": float(first.mean()),
        "speculative": float(second.mean()),
        "difference": float(second.mean() - first.mean()),
        "standard_error": _standard_error(first, second, autoregressive.paths.strata),
    }


def _standard_error(first: NDArray[np.float64], second: NDArray[np.float64], strata: NDArray[np.int64]) -> float:
    """Of the difference of two means over the same histories: only the spread within a history counts."""
    within = [
        values[strata == stratum].var(ddof=1) / (strata == stratum).sum()
        for values in (first, second)
        for stratum in np.unique(strata)
    ]
    return float(np.sqrt(np.sum(within)) / len(np.unique(strata)))


def _truth(found: AgainstTruth) -> dict[str, Any]:
    return {
        "d_ks": found.rescaling.statistic,
        "band": found.rescaling.band,
        "events": found.rescaling.events,
        "log_likelihood_difference": found.likelihood.mean,
        "standard_error": found.likelihood.standard_error,
        "per_event": found.likelihood.per_event,
    }


def keep(row: dict[str, Any], plan: Plan, results: Path) -> None:
    """Put a row into the results, in the place of an earlier one of its dataset and encoder."""
    document = json.loads(results.read_text()) if results.is_file() else {"rows": []}
    rows = [one for one in document["rows"] if (one["dataset"], one["encoder"]) != (row["dataset"], row["encoder"])]
    rows.append(row | {"date": datetime.now(UTC).date().isoformat(), "plan": asdict(plan)})
    rows.sort(key=lambda one: (DATASETS.index(one["dataset"]), ENCODERS.index(one["encoder"])))
    document = {"machine": _machine(), "rows": rows}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(document, indent=1) + "\n")


def _machine() -> str:
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} thread used, torch {torch.__version__}"


def _datasets(names: tuple[str, ...], logs: dict[str, Path | None], seed: int) -> Iterator[Dataset]:
    for name in names:
        path = logs.get(name)
        if name in SIMULATED:
            yield simulated(name, SIMULATED[name], seed)
        elif path is not None:
            yield logged(name, read_log(path), seed)


@click.command()
@click.option("--models", type=click.Path(path_type=Path), required=True, help="Where trained models are kept.")
@click.option("--taxi", type=click.Path(exists=True, path_type=Path), help="Log of New York taxi rides; left out if not given.")
@click.option("--taobao", type=click.Path(exists=True, path_type=Path), help="Log of shop clicks; left out if not given.")
@click.option("--dataset", "datasets", type=click.Choice(DATASETS), multiple=True, default=DATASETS)
@click.option("--encoder", "encoders", type=click.Choice(ENCODERS), multiple=True, default=ENCODERS)
@click.option("--train-seconds", type=float, default=150.0, show_default=True, help="For target and draft of one model.")
@click.option("--threads", type=int, default=1, show_default=True)
@click.option("--layers", type=int, default=20, show_default=True)
@click.option("--draft-length", type=int, default=10, show_default=True)
@click.option("--prompts", type=int, default=32, show_default=True, help="Test histories to go on from.")
@click.option("--prompt-events", type=int, default=50, show_default=True, help="The most events of such a history.")
@click.option("--paths", type=int, default=36, show_default=True, help="Futures of each, by each sampler.")
@click.option("--events", type=int, default=20, show_default=True, help="Events of a future, about.")
@click.option("--sequences", type=int, default=32, show_default=True, help="Whole windows of a simulated process.")
@click.option("--draws", type=int, default=10_000, show_default=True, help="Draws of the next event.")
@click.option("--speed-events", type=int, default=60, show_default=True)
@click.option("--speed-repeats", type=int, default=3, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="JSON that rows are put into.")
def main(
    models: Path,
    taxi: Path | None,
    taobao: Path | None,
    datasets: tuple[str, ...],
    encoders: tuple[str, ...],
    threads: int,
    results: Path,
    **options: Any,
) -> None:
    """Train what is not yet trained, measure every row, save each as it is done."""
    torch.set_num_threads(threads)
    plan = Plan(**options)
    for encoder in encoders:
        for data in _datasets(datasets, {"Taxi": taxi, "Taobao": taobao}, plan.seed):
            began = time.monotonic()
            model = trained(data, target_of(encoder, plan.layers), plan.train_seconds, models, plan.seed)
            ready = time.monotonic()
            click.echo(f"{data.name} {encoder}: trained after {ready - began:.0f} s, {model.facts}")
            row = {"dataset": data.name, "encoder": encoder, **measured(model, data, plan)}
            keep(row, plan, results)
            click.echo(f"{data.name} {encoder}: measured after {time.monotonic() - ready:.0f} s")


if __name__ == "__main__":
    main()
