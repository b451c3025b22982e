"""A new model in the model's folder, taken up by a running worker: read aside, checked, and put in place between two batches."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
from mode import Service

from stream_tpp.errors import StreamTppError
from stream_tpp.model.checkpoint import load
from stream_tpp.model.model import Model
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.sampler import Sampler
from stream_tpp.topologies.boot import start_first

log = logging.getLogger(__name__)

Make = Callable[[Model], Forecaster]


class PickUp(Service):
    """Looks at a model folder every so many seconds, and when its files change, has the sampler go on with the model there.

    Histories hold types by their place in the vocabulary, so a model of another vocabulary is refused, as is one that is
    damaged or only half there: that is logged in a sentence and counted, the model in use stays, and the folder is looked at
    again once its files have changed again.
    """

    def __init__(self, folder: Path, make: Make, sampler: Sampler[Any], counters: Counters, every: float) -> None:
        super().__init__()
        self.folder = folder
        self.make = make
        self.sampler = sampler
        self.counters = counters
        self.every = every
        self._seen = _files(folder)

    async def look(self) -> None:
        """Take up the model in the folder, if its files are not those seen last."""
        files = await asyncio.to_thread(_files, self.folder)
        if files == self._seen:
            return
        self._seen = files
        try:
            forecaster = await asyncio.to_thread(self._read)
        except StreamTppError as refusal:
            self.counters.models_refused += 1
            log.error("The model in use stays, version %s: %s", self.sampler.forecaster.version, refusal)
            return
        if forecaster.version != self.sampler.forecaster.version:
            log.info("Model version %s takes over from %s", forecaster.version, self.sampler.forecaster.version)
            self.counters.models_taken_up += 1
            self.sampler.forecaster = forecaster

    def _read(self) -> Forecaster:
        forecaster = self.make(load(self.folder))
        used, found = list(self.sampler.forecaster.types), list(forecaster.types)
        if used != found:
            raise StreamTppError(
                f"The model in {self.folder} knows other types of events ({', '.join(found)}) than the one in use "
                f"({', '.join(used)}): restart the worker for it, which begins histories anew."
            )
        return forecaster

    @Service.task
    async def _watch(self) -> None:
        while not self.should_stop:
            await self.sleep(self.every)
            try:
                await self.look()
            except Exception:
                # Nothing that lies in a folder may end a worker that has a good model.
                self.counters.models_refused += 1
                log.exception("The model in %s could not be taken up", self.folder)


def pick_up(app: faust.App, folder: Path, make: Make, sampler: Sampler[Any], counters: Counters, every: float) -> None:
    """Have `app` take up new models from `folder` while it runs; `make` turns one into what forecasts."""
    start_first(app, PickUp(folder, make, sampler, counters, every))


def _files(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What tells one state of the folder's files from another: which file, how long, when written."""
    try:
        with os.scandir(folder) as entries:
            stats = {entry.name: entry.stat() for entry in entries if not entry.name.endswith(".partial")}
    except OSError:
        return {}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
