"""What it saves to keep what was read of a history from one event of an entity to the next.

    stream-tpp fit flights --out models/deep --layers 20 --heads 8 --feedforward 32 --window 256 --until 2013-11-01 \
        --cycle day --cycle week --batch-size 16 --time-limit 30 --threads 1
    python benchmarks/warm.py --model models/deep --out benchmarks/results/warm.json

The departures of November and December of the aircraft that flew most, in order of time: at each one a forecast for its
aircraft. Three forecasters take turns at every event, with the same answers (checked): `anew` reads the history for the forecast
and the rule, and again for each batch of paths that the rule asks for besides; `cold` reads it once a forecast; `warm` keeps
it. Always one thread. The flights model is measured in any case, and whatever --model names. The first departure of each
aircraft is not counted: there is nothing to keep yet. Times are medians, and how many times the speed the median of the ratios
event by event, in CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

from stream_tpp.event import Event
from stream_tpp.forecast import Forecast, Forecaster, Request
from stream_tpp.history import Ring, Slot
from stream_tpp.logs.flights import read_flights
from stream_tpp.model.checkpoint import load
from stream_tpp.model.model import Model
from stream_tpp.pretrained import FLIGHTS
from stream_tpp.sampling.prefixes import Prefix, Prefixes
from stream_tpp.warning.rule import Rule

DAY = 86_400.0
LEARNT_UNTIL = datetime(2013, 11, 1, tzinfo=UTC).timestamp()
HELD = 256


class Anew(Prefixes):
    """Keeps nothing at all."""

    def find(self, entity: str) -> Prefix | None:
        return None


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    models = {"flights": FLIGHTS} | ({options.model.name: options.model} if options.model else {})
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()} CPU, {os.cpu_count()} cores, 1 thread used",
        "command": " ".join(["python", *sys.argv]),
        "entities": options.entities,
        "rows": [row for name, folder in models.items() for row in measure(name, load(folder), options)],
    }
    print(json.dumps(found, indent=2))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def measure(name: str, model: Model, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each way."""
    forecasters = {way: _forecaster(model, options.paths, way) for way in ("anew", "cold", "warm")}
    cpu, wall = ({way: list[float]() for way in forecasters} for _ in range(2))
    read, ways, asked, begun = Counter[str](), list(forecasters), 0, set[str]()
    for request in _requests(model, options.entities):
        if request.entity not in begun:
            begun.add(request.entity)
            for forecaster in forecasters.values():
                forecaster.forecast([request])
            continue
        if asked == options.events:
            break
        answers: list[Forecast] = []
        # Each is first, second and third in turn.
        ways.append(ways.pop(0))
        for way in ways:
            read[way] -= forecasters[way].prefixes.read
            worked, began = time.process_time(), time.perf_counter()
            answers += forecasters[way].forecast([request])
            cpu[way].append(1000 * (time.process_time() - worked))
            wall[way].append(1000 * (time.perf_counter() - began))
            read[way] += forecasters[way].prefixes.read
        assert answers[0] == answers[1] == answers[2], "what was kept changed a forecast"
        asked += 1
    for way, forecaster in forecasters.items():
        kept = forecaster.prefixes
        yield {
            "model": name,
            "layers": model.config.target.layers,
            "d_model": model.config.target.d_model,
            "window": min(model.window, HELD),
            "paths": options.paths,
            "way": way,
            "forecasts": asked,
            "cpu_ms_per_forecast": round(median(cpu[way]), 2),
            "wall_ms_per_forecast": round(median(wall[way]), 2),
            "times_the_speed_of_anew": round(median(a / b for a, b in zip(cpu["anew"], cpu[way], strict=True)), 2),
            "events_read_per_forecast": round(read[way] / asked, 1),
            "bytes_held": kept.nbytes,
            "prefixes_let_go": kept.evictions,
        }


def _forecaster(model: Model, paths: int, way: str) -> Forecaster:
    rule = Rule({"late", "very_late", "cancelled"}, horizon=DAY, threshold=0.2)
    forecaster = Forecaster(model, [rule], horizon=DAY, paths=paths)
    if way != "warm":
        forecaster.prefixes = Anew(0) if way == "anew" else Prefixes(0)
    return forecaster


def _requests(model: Model, entities: int) -> Iterator[Request]:
    """What a worker asks at each departure after those that the model learnt from, as `operators/forecasting.py` does."""
    events = [event for event in read_flights().events if event.type in model.types]
    flown = Counter(event.entity for event in events)
    chosen = {entity for entity, _ in flown.most_common(entities)}
    rings: dict[str, Ring] = defaultdict(lambda: Ring(HELD, 256, reorder=64))
    for offset, event in enumerate(events):
        if event.entity in chosen:
            ring = rings[event.entity]
            ring.absorb(_slot(offset, event, model))
            if event.time >= LEARNT_UNTIL:
                history = ring.as_of(offset)
                yield Request(event.entity, history, float(history.times[-1]), seed=offset)


def _slot(offset: int, event: Event, model: Model) -> Slot:
    return Slot(offset, event.time, model.types.index(event.type), 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of another model of the flights")
    parser.add_argument("--entities", type=int, default=32, help="aircraft")
    parser.add_argument("--events", type=int, default=400, help="departures that are forecast at")
    parser.add_argument("--paths", type=int, default=64)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
