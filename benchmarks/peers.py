"""Events per second beside the samplers of other libraries, on the same histories, machine and size of model.

python benchmarks/peers.py --cache FOLDER [--model FOLDER]
    writes benchmarks/results/peers.json

EasyTPP and HoTPP are installed into environments of their own under FOLDER, once; so is the model trained that ours samples from,
where --model names none. Every sampler lives in a process of its own and waits while another one runs; all take turns, and
medians count. Speed does not depend on how good a model is, but ours depends on how much of its draft is accepted: ours is
trained, theirs have random weights.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import click
import paper
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.trained import simulated, trained
from stream_tpp.history import History
from stream_tpp.model.checkpoint import load
from stream_tpp.model.model import Model

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "peers.json"
DATASET, HISTORY = "MultiHawkes", 100
BATCHES = (1, 64)
OURS = {"stream-tpp, speculative": None, "stream-tpp, event by event": 0}  # draft lengths; None: Model.sample's own
SIZE = {"layers": 20, "heads": 8, "d_model": 64, "feedforward": 32}
# EasyTPP can't take as many steps as the history has events.
OURS_EVENTS, FEWEST, MOST = 100, 2, HISTORY - 1
TRAIN_SECONDS, SEED = 60.0, 0


@dataclass(frozen=True)
class Package:
    """A library on PyPI; `first`: what has to be there before it, where it builds against it."""

    name: str
    version: str
    first: tuple[str, ...] = ()


EASYTPP = Package("easy-tpp", "0.3.0")
HOTPP = Package("hotpp-benchmark", "0.7.0", ("setuptools", "wheel", "ninja", "numpy"))


@dataclass(frozen=True)
class Peer:
    """A sampler of another library: the script beside this one that runs it, what that is told, how many histories at a time."""

    name: str
    package: Package
    script: str
    settings: dict[str, Any]
    batches: tuple[int, ...] = BATCHES


PEERS = (
    Peer("EasyTPP THP, thinning", EASYTPP, "peer_easytpp.py", {}),
    Peer("HoTPP Transformer, RMTPP times by thinning", HOTPP, "peer_hotpp.py", {"way": "rmtpp"}),
    # Two events of 64 histories took it minutes.
    Peer("HoTPP AttNHP, thinning, cached states", HOTPP, "peer_hotpp.py", {"way": "attnhp"}, batches=(1,)),
    Peer("HoTPP Transformer, point forecasts of times", HOTPP, "peer_hotpp.py", {"way": "mae"}),
)

Run = Callable[[int, int], tuple[float, int]]
"""Sample the first `batch` histories, `events` each: seconds, and events drawn."""


class Worker:
    """A peer's process: one line of JSON in, one out."""

    def __init__(self, python: Path, peer: Peer, histories: Path, threads: int) -> None:
        told = json.dumps({**SIZE, **peer.settings, "threads": threads, "most_events": MOST, "histories": str(histories)})
        self._process = subprocess.Popen(
            [str(python), str(HERE / peer.script), told], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about = self._answer()

    def run(self, batch: int, events: int) -> tuple[float, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"batch": batch, "events": events}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], answer["events"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StreamTppError(f"{self._process.args} ended with code {self._process.wait()}: its errors are above.")
        return dict(json.loads(line))


def installed(package: Package, cache: Path) -> Path:
    """The Python of an environment that holds the package and the torch of this one. Raises CalledProcessError."""
    place = cache / f"{package.name}-{package.version}"
    python, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        click.echo(f"Installing {package.name} {package.version} into {place}", err=True)
        torch_version = metadata.version("torch").partition("+")[0]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        isolation = ["--no-build-isolation"] if package.first else []
        _call(sys.executable, "-m", "venv", "--clear", str(place))
        _call(*pip, f"torch=={torch_version}", *package.first)
        _call(*pip, *isolation, f"{package.name}=={package.version}")
        ready.touch()
    return python


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def ours(model: Model, histories: list[History], draft_length: int | None) -> Run:
    """`Model.sample` with its own defaults (draft_length None), or event by event on the same cache (0)."""
    chosen = {} if draft_length is None else {"draft_length": draft_length}
    calls = 0

    def run(batch: int, events: int) -> tuple[float, int]:
        nonlocal calls
        calls += 1
        began = time.perf_counter()
        futures = model.sample(histories[:batch], max_events=events, seed=calls, **chosen)
        return time.perf_counter() - began, int(futures.lengths.sum())

    return run


def measure(runs: dict[str, Run], batch: int, repeats: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Events per second of each, and of ours over each: medians over the repeats, in which all take turns.

    A peer draws as many events as fit into `seconds` by a first run: autoregression costs the same for each event, but for
    what its context grows, and that is less with fewer.
    """
    events = {name: OURS_EVENTS if name in OURS else _affordable(run, batch, seconds) for name, run in runs.items()}
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for run, count in zip(runs.values(), events.values(), strict=True):
        run(batch, count)
    for _ in range(repeats):
        for name, run in runs.items():
            spent, drawn = run(batch, events[name])
            speeds[name].append(drawn / spent)
    return {
        name: {
            "batch": batch,
            "events_a_history": events[name],
            "events_per_s": statistics.median(found),
            "ours_over_it": statistics.median(a / b for a, b in zip(speeds[next(iter(OURS))], found, strict=True)),
        }
        for name, found in speeds.items()
    }


def _affordable(run: Run, batch: int, seconds: float) -> int:
    run(batch, FEWEST)
    spent, _ = run(batch, FEWEST)
    return int(min(max(FEWEST * seconds / spent, FEWEST), MOST))


def _histories(types: int) -> list[History]:
    """The first HISTORY events of simulated test sequences that have as many."""
    data = simulated(DATASET, paper.SIMULATED[DATASET], SEED)
    if len(data.split.types) != types:
        raise StreamTppError(
            f"The model knows {types} types, {DATASET} has {len(data.split.types)}: give a model of that process."
        )
    every = [one.history for one in [*data.split.test, *data.split.validation]]
    long = [History(one.times[:HISTORY], one.types[:HISTORY], one.start) for one in every if len(one) >= HISTORY]
    if len(long) < max(BATCHES):
        raise StreamTppError(f"Only {len(long)} sequences have {HISTORY} events; {max(BATCHES)} are needed.")
    return long[: max(BATCHES)]


def _machine(threads: int) -> str:
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)} used by every sampler"


def _table(rows: list[dict[str, Any]]) -> str:
    head = f"{'sampler':45} {'histories':>9}  {'events/s':>9}  ours is"
    lines = (f"{row['sampler']:45} {row['batch']:>9}  {row['events_per_s']:>9.1f}  {row['ours_over_it']:.1f}x" for row in rows)
    return "\n".join((head, *lines))


@click.command(epilog="Example: python benchmarks/peers.py --cache ~/.cache/stream-tpp-peers")
@click.option("--cache", required=True, type=click.Path(file_okay=False, path_type=Path), help="Environments and the model.")
@click.option("--model", "folder", type=click.Path(path_type=Path), help="Folder of a model of MultiHawkes, already trained.")
@click.option("--repeats", type=click.IntRange(1), default=5)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=10.0, help="Of each run of a peer, at most about.")
@click.option("--threads", type=click.IntRange(1), default=1, help="CPU threads of every sampler.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=RESULTS, show_default="results/peers.json")
def main(cache: Path, folder: Path | None, repeats: int, seconds: float, threads: int, out: Path) -> None:
    """Measure, print a table, write the results."""
    cache = cache.expanduser().resolve()
    cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(threads)
    data = simulated(DATASET, paper.SIMULATED[DATASET], SEED)
    model = (
        load(folder) if folder else trained(data, paper.target_of("thp", SIZE["layers"]), TRAIN_SECONDS, cache / "models", SEED)
    )
    histories = _histories(len(model.types))
    shared = cache / "histories.json"
    shared.write_text(
        json.dumps({"times": [h.times.tolist() for h in histories], "types": [h.types.tolist() for h in histories]})
    )
    about: dict[str, dict[str, Any]] = {name: _about_ours(model) for name in OURS}
    runs: dict[str, Run] = {name: ours(model, histories, length) for name, length in OURS.items()}
    failed: dict[str, str] = {}
    with ExitStack() as workers:
        for peer in PEERS:
            try:
                python = installed(peer.package, cache)
            except subprocess.CalledProcessError as error:
                failed[peer.name] = (error.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                continue
            worker = workers.enter_context(Worker(python, peer, shared, threads))
            runs[peer.name], about[peer.name] = worker.run, {**asdict(peer.package), **worker.about}
            about[peer.name].pop("first")
        rows = []
        for batch in BATCHES:
            click.echo(f"{batch} histories at a time", err=True)
            left_out = {peer.name for peer in PEERS if batch not in peer.batches}
            found = measure({name: run for name, run in runs.items() if name not in left_out}, batch, repeats, seconds)
            rows += [{"sampler": name, **about[name], "history": HISTORY, **figures} for name, figures in found.items()]
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": _machine(threads),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "dataset": f"{DATASET}, simulated",
        "repeats": repeats,
        "not_installed": failed,
        "rows": rows,
    }
    out.write_text(json.dumps(document, indent=2) + "\n")
    click.echo(_table(rows))
    for name, reason in failed.items():
        click.echo(f"{name} could not be installed: {reason}", err=True)


def _about_ours(model: Model) -> dict[str, Any]:
    target = model.config.target
    seconds = model.facts.get("train_seconds", model.facts.get("seconds"))
    return {
        "name": "stream-tpp",
        "version": metadata.version("stream-tpp"),
        "layers": target.layers,
        "heads": target.heads,
        "d_model": target.d_model,
        "parameters": sum(p.numel() for p in model.target.parameters()),
        "draft_parameters": sum(p.numel() for p in model.draft.parameters()),
        "weights": f"trained for {seconds:g} s" if seconds else "trained",
        "settings": {"encoder": target.encoder, "components": target.components, "draft": model.config.draft.kind},
    }


if __name__ == "__main__":
    main()
