"""`stream-tpp evaluate`: is a model sampled exactly, and what is it worth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import SEED, Finite
from stream_tpp.cli.output import json_option, progress, show

if TYPE_CHECKING:
    from stream_tpp.evaluation.known_law import AgainstTruth
    from stream_tpp.evaluation.prompts import Prompt
    from stream_tpp.evaluation.study import Exactness
    from stream_tpp.model.model import Model

_MODES = ("joint", "sequential", "hierarchical", "block")
_PROCESSES = ("poisson", "hawkes", "multivariate_hawkes")
_EVENTS_A_PATH = 20


@click.group()
def command() -> None:
    """Judge a model: are its samples exact, are its forecasts any good."""


@command.command(epilog="Example: stream-tpp evaluate fidelity models/mine events.csv --sequences 200 --seed 0 --json")
@click.argument("model", type=click.Path(path_type=Path))
@log_argument()
@click.option("--sequences", type=click.IntRange(1), default=200, help="Histories to go on from, cut out of the log's.")
@click.option("--full", is_flag=True, help="Then go on from each entity's whole history as well.")
@click.option("--paths", type=click.IntRange(1), default=16, help="Futures of each, by each of the two samplers.")
@click.option("--horizon", type=Finite(0, min_open=True), metavar="SECONDS", help="[default: about 20 events]")
@click.option("--seed", type=SEED, default=0, help="Of histories, futures and permutations.")
@click.option("--mode", "modes", type=click.Choice(_MODES), multiple=True, default=["joint"], help="May be given again.")
@click.option("--draft-length", type=click.IntRange(1, 64), default=4, help="Events drafted for each pass of the target.")
@click.option("--level", type=Finite(0, 1, min_open=True), default=0.01, help="Chance to reject an exact sampler.")
@click.option("--draws", type=click.IntRange(2), default=10_000, help="Draws of the next event for its Wasserstein distance.")
@click.option("--process", type=click.Choice(_PROCESSES), help="The log was simulated from this: compare with it, too.")
@json_option
def fidelity(model: Path, log: Log, full: bool, as_json: bool, modes: tuple[str, ...], **options: Any) -> None:
    """Compare speculative with autoregressive samples of MODEL that go on from the histories of LOG.

    Tests permute whole futures of a history between the samplers; p-values are Holm-corrected, and beside each stands the
    smallest deviation that it finds with 80% power. Exit code 1 if any is below the level.
    """
    from stream_tpp.evaluation.prompts import Prompt, choose_prompts
    from stream_tpp.logs.histories import gather_histories
    from stream_tpp.model.checkpoint import load

    loaded = load(model)
    histories, unknown = gather_histories(log.events(), loaded.types)
    if unknown:
        click.echo(f"{unknown} events of types that the model doesn't know were left out.", err=True)
    stages = {"first": choose_prompts(histories, options["sequences"], options["seed"])}
    if full:
        stages["full"] = [Prompt(history, float(history.times[-1])) for history in histories.values()]
    level = options["level"] / (len(stages) * len(modes))
    documents = []
    for stage, prompts in stages.items():
        found = _study(loaded, prompts, modes, level, options)
        documents.append({"stage": stage, "sequences": len(prompts), **_document(found)})
        if not documents[-1]["passed"]:
            break
    last = dict(documents[-1])
    if full:
        last["stages"] = documents
    if options["process"]:
        last["known_law"] = _known_law(loaded, modes, options)
    show({**last, "model": loaded.version}, _text(last), as_json)
    if not last["passed"]:
        click.get_current_context().exit(1)


def _study(model: Model, prompts: list[Prompt], modes: tuple[str, ...], level: float, options: dict[str, Any]) -> list[Exactness]:
    from stream_tpp.evaluation.sampled import Sampler, typical_horizon
    from stream_tpp.evaluation.study import Study

    horizon = options["horizon"] or typical_horizon(model, prompts, _EVENTS_A_PATH, options["seed"])
    study = Study(horizon, options["paths"], options["draws"], level, options["seed"])
    found: list[Exactness] = []
    with progress("Sampling and comparing", len(modes) + 1) as done:
        against = study.autoregressive(model, prompts)
        for mode in modes:
            done(len(found) + 1)
            found.append(study.of(model, prompts, Sampler(options["draft_length"], mode), against))
    return found


def _document(found: list[Exactness]) -> dict[str, Any]:
    """Of one mode, its keys; of more, those of the mode with the smallest p-value, and all under `modes`."""
    modes = {one.sampler.mode: _mode(one) for one in found}
    worst = min(modes.values(), key=lambda document: min(document["tests"].values()))
    passed = all(document["passed"] for document in modes.values())
    return {**worst, "passed": passed, **({"modes": modes} if len(modes) > 1 else {})}


def _mode(one: Exactness) -> dict[str, Any]:
    document: dict[str, Any] = one.comparison.as_json()
    own = {f"own_law_{name}": value for name, value in one.own_law.tests.items()}
    power = {f"own_law_{name}": value for name, value in one.own_law.power.items()}
    return {
        **document,
        "passed": one.passed,
        "mode": one.sampler.mode,
        "draft_length": one.sampler.draft_length,
        "tests": {**document["tests"], **own},
        "power": {**document["power"], **power},
        "next_event": asdict(one.next_event),
        "acceptance": one.stats.acceptance,
        "events_per_target_pass": one.stats.events_per_target_pass,
    }


def _known_law(model: Model, modes: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    from stream_tpp.evaluation.known_law import against_truth
    from stream_tpp.evaluation.sampled import Sampler
    from stream_tpp.processes import PAPER_WINDOW, paper_process

    process = paper_process(options["process"])
    samplers = {"autoregressive": Sampler(0), **{mode: Sampler(options["draft_length"], mode) for mode in modes}}
    rows = {}
    for place, (name, sampler) in enumerate(samplers.items()):
        found = against_truth(model, process, PAPER_WINDOW, sampler, options["sequences"], options["seed"] + (place << 60))
        rows[name] = _truth(found)
    return rows


def _truth(found: AgainstTruth) -> dict[str, Any]:
    return {
        "d_ks": found.rescaling.statistic,
        "band": found.rescaling.band,
        "p_value": found.rescaling.p_value,
        "events": found.rescaling.events,
        "d_ks_by_type": [one.statistic for one in found.by_type],
        "log_likelihood_difference": found.likelihood.mean,
        "standard_error": found.likelihood.standard_error,
    }


def _text(document: dict[str, Any]) -> str:
    lines = [f"{'test':24} {'p, corrected':>12}  would have seen"]
    for name, p_value in document["tests"].items():
        lines.append(f"{name:24} {p_value:12.4f}  {document['power'][name]:.4f}")
    divergence, by_chance = document["js_divergence"], document["js_by_chance"]
    lines.append("Jensen-Shannon, bits: " + ", ".join(f"{k} {v:.5f} (chance {by_chance[k]:.5f})" for k, v in divergence.items()))
    near = document["next_event"]
    lines.append(
        f"Next event: gap {near['gap']:.4g} s apart (chance {near['gap_by_chance']:.4g}), "
        f"types {near['type_variation']:.4f} (chance {near['type_variation_by_chance']:.4f})."
    )
    for name, row in document.get("known_law", {}).items():
        lines.append(
            f"Known law, {name}: D_KS {row['d_ks']:.4f} (band {row['band']:.4f}, {row['events']} events), log likelihood "
            f"{row['log_likelihood_difference']:+.3f} +- {row['standard_error']:.3f} a sequence."
        )
    verdict = "One law" if document["passed"] else "NOT one law"
    lines.append(
        f"{verdict}: {document['events'][0]} speculative and {document['events'][1]} autoregressive events, acceptance "
        f"{document['acceptance']:.0%}, {document['events_per_target_pass']:.2f} events a target pass."
    )
    return "\n".join(lines)
