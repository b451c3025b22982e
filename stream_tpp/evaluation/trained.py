"""Models for benchmarks: trained once on a data set, under a time limit, and kept in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.model.checkpoint import load, save
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.processes import Process, paper_process, simulate
from stream_tpp.training.data import Observed, Split, split_log, split_simulated
from stream_tpp.training.fit import Recipe, fit

_JUDGED_EVENTS = 5_000


@dataclass(frozen=True)
class Dataset:
    """A split to train on, and the law that it was drawn from where that is known."""

    name: str
    split: Split
    process: Process | None = None

    @property
    def longest(self) -> int:
        """Events of the longest training sequence: what a target reads whole, so that time since the start is known to it."""
        return max(len(one.history) for one in self.split.train)

    def test_histories(self, count: int, most: int) -> list[History]:
        """The `count` longest of the test part, the first `most` events of each. Raises StreamTppError where there are fewer."""
        histories = sorted((one.history for one in self.split.test), key=len, reverse=True)
        if len(histories) < count:
            raise StreamTppError(f"{self.name} has {len(histories)} test sequences and {count} are needed: give a longer log.")
        return [History(h.times[:most], h.types[:most], h.start) for h in histories[:count]]


def simulated(name: str, process: str, seed: int = 0) -> Dataset:
    """1,000 sequences of a process of the paper on [0, 100], 80/10/10."""
    law = paper_process(process)  # type: ignore[arg-type]
    return Dataset(name, split_simulated(simulate(law, seed=seed), law.num_types), law)


def logged(name: str, events: Iterable[Event], seed: int = 0) -> Dataset:
    """A log, split 80/10/10 by entity."""
    return Dataset(name, split_log(events, seed=seed))


def trained(data: Dataset, target: TargetConfig, seconds: float, folder: Path, seed: int = 0) -> Model:
    """A model of `target`'s shape, from `folder` where it was trained before with the same data and as long."""
    place = folder / f"{data.name.lower()}-{target.encoder}-{target.layers}x{target.feedforward}-{seconds:g}s-{_digest(data)}"
    if (place / "model.json").is_file():
        return load(place)
    # Steps of about a thousand events: a time limit of minutes allows few of them.
    window, size = (data.longest, 2) if data.process else (128, 16)
    recipe = Recipe(target, window=window, batch_size=size, time_limit=seconds, seed=seed)
    # Judging takes as long as training does: a part of what is held out tells enough when to stop.
    split = replace(data.split, validation=_some(data.split.validation), test=_some(data.split.test))
    fitted = fit(split, recipe)
    fitted.model.facts = {
        "test_nll": fitted.test_nll,
        "train_nll": fitted.train_nll,
        "baselines": fitted.baselines,
        "seconds": fitted.seconds,
        "train_seconds": seconds,
    }
    save(fitted.model, place)
    return fitted.model


def _some(part: list[Observed]) -> list[Observed]:
    """The first sequences, of _JUDGED_EVENTS events or just more."""
    sizes = np.cumsum([len(one.history) for one in part])
    return part[: int(np.searchsorted(sizes, _JUDGED_EVENTS)) + 1]


def _digest(data: Dataset) -> str:
    digest = blake2b(digest_size=4)
    for one in data.split.train:
        digest.update(one.history.times.tobytes())
        digest.update(one.history.types.tobytes())
    return digest.hexdigest()
