"""The draft length that the throughput policy chooses, against a sweep of fixed ones, in turn in one process.

    python benchmarks/draft_length.py --models FOLDER [--log LOG ...] --out benchmarks/results/draft_length.json

Models of 20 layers are trained once and kept in FOLDER, as `stream-tpp bench sampler` does; the flights model of 3 layers ships
with the package. Time is that of the thread, which other processes do not lengthen; what the policy itself costs is in it. The
best fixed length is found in every other repeat, and its speed taken from the rest: a best of many noisy figures flatters.
`choices_over_best` is the speed that the sweep itself measured at the lengths which the policy chose, over that of the best: the
same seconds on both sides, so a machine that was busy during the policy's few runs does not count.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

from stream_tpp.evaluation.trained import logged, simulated, trained
from stream_tpp.history import History
from stream_tpp.logs import read_log
from stream_tpp.model.checkpoint import load
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.pretrained import FLIGHTS
from stream_tpp.sampling.draft_length import LONGEST, Acceptance, DraftLength, Throughput

# Histories, paths of each, events of a path.
SHAPES = ((1, 1, 100), (1, 64, 20), (16, 16, 10))
LENGTHS = range(LONGEST + 1)
HISTORY_EVENTS = 100
# A call that draws fewer events says less about a speed, and takes more turns.
EVENTS_A_TURN = 1280


class Timed:
    """One way to choose the length: events and seconds of its runs, thread time and wall time."""

    def __init__(self, by: int | DraftLength) -> None:
        self.by = by
        self.runs: list[tuple[int, float, float]] = []

    def run(self, model: Model, histories: list[History], paths: int, events: int, seed: int) -> None:
        wall, own = time.perf_counter(), time.thread_time()
        futures = model.sample(histories, max_events=events, paths=paths, seed=seed, draft_length=self.by)
        self.runs.append((futures.stats.events, time.thread_time() - own, time.perf_counter() - wall))

    def rate(self, every: slice = slice(None), clock: int = 1) -> float:
        """Events a second over all of these runs together."""
        runs = self.runs[every]
        return sum(run[0] for run in runs) / sum(run[clock] for run in runs)


class Watched(Throughput):
    """Counts what is chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: Counter[int] = Counter()

    def choose(self, rows: int) -> int:
        length = super().choose(rows)
        self.chosen[length] += 1
        return length


def compared(model: Model, histories: list[History], paths: int, events: int, settle: int, repeats: int) -> dict[str, Any]:
    """A row: speeds of the fixed lengths, of the policy in its first `settle` calls, and of both in the turns that follow."""
    by = Watched()
    policy, acceptance = Timed(by), Timed(Acceptance())
    fixed = {gamma: Timed(gamma) for gamma in LENGTHS}
    model.sample(histories, max_events=events, paths=paths)
    for number in range(settle):
        policy.run(model, histories, paths, events, number)
        acceptance.run(model, histories, paths, events, number)
    early, policy.runs, acceptance.runs = policy.rate(), [], []
    by.chosen.clear()
    for number in range(repeats * max(1, EVENTS_A_TURN // (len(histories) * paths * events))):
        for timed in (*fixed.values(), policy, acceptance):
            timed.run(model, histories, paths, events, settle + number)
    looked, judged = slice(0, None, 2), slice(1, None, 2)
    best = max(LENGTHS, key=lambda gamma: fixed[gamma].rate(looked))
    chosen = sum(times / fixed[gamma].rate(judged) for gamma, times in by.chosen.items()) / by.chosen.total()
    return {
        "histories": len(histories),
        "paths": paths,
        "events": events,
        "events_per_cpu_s": {str(gamma): round(fixed[gamma].rate()) for gamma in LENGTHS},
        "best_fixed": best,
        "best_fixed_events_per_cpu_s": round(fixed[best].rate(judged)),
        "throughput_events_per_cpu_s": round(policy.rate(judged)),
        "throughput_over_best": round(policy.rate(judged) / fixed[best].rate(judged), 3),
        "throughput_over_best_wall": round(policy.rate(judged, 2) / fixed[best].rate(judged, 2), 3),
        "choices_over_best": round(1 / chosen / fixed[best].rate(judged), 3),
        "first_calls_over_best": round(early / fixed[best].rate(), 3),
        "acceptance_over_best": round(acceptance.rate(judged) / fixed[best].rate(judged), 3),
        "chosen": {str(gamma): times for gamma, times in sorted(by.chosen.items())},
    }


def models(folder: Path, logs: tuple[str, ...], seconds: float) -> Iterator[tuple[str, Model, list[History]]]:
    """Each model with the histories that it goes on from."""
    most = max(count for count, _, _ in SHAPES)
    flights = logged("flights", read_log("flights"))
    yield "flights, as shipped", load(FLIGHTS), flights.test_histories(most, HISTORY_EVENTS)
    data = [simulated("hawkes", "hawkes"), simulated("multihawkes", "multivariate_hawkes"), flights]
    data += [logged(Path(log).name, read_log(log)) for log in logs]
    for one in data:
        target = TargetConfig(1, layers=20, heads=8, d_model=64, components=64)
        yield one.name, trained(one, target, seconds, folder), one.test_histories(most, HISTORY_EVENTS)


@click.command()
@click.option("--models", "folder", type=click.Path(path_type=Path), required=True, help="Where trained models are kept.")
@click.option("--log", "logs", multiple=True, help="A log beside the simulated processes and flights; may be repeated.")
@click.option("--train-seconds", type=float, default=60.0, help="For each model.")
@click.option("--settle", type=click.IntRange(1), default=40, help="Calls of the policy before the comparison.")
@click.option("--repeats", type=click.IntRange(2), default=20, help="Turns of all, more where a call is short.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows here.")
def main(folder: Path, logs: tuple[str, ...], train_seconds: float, settle: int, repeats: int, out: Path | None) -> None:
    torch.set_num_threads(1)
    rows = []
    for name, model, histories in models(folder, logs, train_seconds):
        for count, paths, events in SHAPES:
            row = compared(model, histories[:count], paths, events, settle, repeats)
            rows.append({"dataset": name, "layers": model.config.target.layers, **row})
            click.echo(json.dumps(rows[-1]))
            if out:
                machine = f"{platform.machine()} CPU, {os.cpu_count()} cores, 1 thread used"
                command = f"python benchmarks/draft_length.py --models FOLDER --settle {settle} --repeats {repeats}"
                out.write_text(json.dumps({"machine": machine, "command": command, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
