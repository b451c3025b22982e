"""`stream-tpp doctor`: why a model accepts little, gives NaN, or samples slowly, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.cli.number import SEED, THREADS
from stream_tpp.cli.output import json_option, progress, show

if TYPE_CHECKING:
    from stream_tpp.evaluation.doctor import Finding

_MEANS = {
    "weights": "weights that are NaN or infinite",
    "types": "share of events of unknown type",
    "time_unit": "the log's typical gap / the model's",
    "density": "distance of the laws' integrals from 1",
    "bins": "what coarser bins would add to the next line",
    "draft": "share of the target's law that the draft covers",
    "acceptance": "chance that a drafted event stands",
    "draft_cost": "one more drafted event, in passes of the target",
    "verification": "the rest of a round, in passes of the target",
    "draft_length": "events to draft for each pass",
    "speed": "times the speed of drawing event by event",
    "sampling": "did sampling come to an end",
}


@click.command(epilog="Example: stream-tpp doctor models/mine events.csv --draft-length 8")
@click.argument("model", type=click.Path(path_type=Path))
@log_argument()
@click.option("--draft-length", type=click.IntRange(1, 64), help="Examine this one  [default: find the best]")
@click.option("--paths", type=click.IntRange(1), default=1, help="Futures of a history that are sampled at once.")
@click.option("--histories", type=click.IntRange(1), default=12, help="Histories of the log to sample from, one at a time.")
@click.option("--threads", type=THREADS, help="CPU threads.")
@click.option("--seed", type=SEED, default=0, help="Of histories and futures.")
@json_option
def command(
    model: Path,
    log: Log,
    draft_length: int | None,
    paths: int,
    histories: int,
    threads: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Say why MODEL accepts few drafted events, gives NaN, samples slowly or gains nothing on LOG, and what to do.

    Costs are measured on this machine, so nothing else should keep it busy. Exit code 0 means that the examination could be
    done, whatever it found.
    """
    import torch

    from stream_tpp.evaluation.doctor import Examination, examine
    from stream_tpp.model.checkpoint import load

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load(model)
    how = Examination(paths=paths, prompts=histories, draft_length=draft_length, seed=seed)
    with progress("Examining", histories) as done:
        findings = list(examine(loaded, log.events(), how, done))
    document = {"findings": [asdict(finding) for finding in findings], "model": loaded.version}
    show(document, _text(findings), as_json)


def _text(findings: list[Finding]) -> str:
    lines = []
    for finding in findings:
        value = "-" if finding.value is None else f"{finding.value:.3g}"
        lines.append(f"{finding.verdict:8} {finding.check:13} {value:>9}  {_MEANS[finding.check]}")
        if finding.advice:
            lines.append(click.wrap_text(finding.advice, width=110, initial_indent="    ", subsequent_indent="    "))
    troubles = sum(finding.verdict != "ok" for finding in findings)
    lines.append(f"{troubles} of {len(findings)} checks found something." if troubles else "Nothing found: the model is well.")
    return "\n".join(lines)
