"""A small engine whose forecasts are functions of the request, so that equal requests give equal records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson
import pytest

from stream_tpp.forecast import Forecast, Request
from stream_tpp.operators.driver import Driver
from stream_tpp.warning.rule import Rule
from stream_tpp.warning.score import Score


@dataclass
class Engine:
    """Scores an entity by the share of events of type "bad" in its history; fails on the entities in `guilty`."""

    types: tuple[str, ...] = ("ok", "bad")
    rules: tuple[str, ...] = ("r",)
    window: int = 8
    version: str = "model-1"
    horizon: float = 60.0
    paths: int = 8
    guilty: frozenset[str] = frozenset()
    nan: frozenset[str] = frozenset()
    requests: list[Request] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)

    def forecast(self, requests: Sequence[Request]) -> list[Forecast]:
        self.batches.append([request.entity for request in requests])
        self.requests.extend(requests)
        if any(request.entity in self.guilty for request in requests):
            raise RuntimeError("the law fell to pieces")
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Forecast:
        history = request.history
        share = math.nan if request.entity in self.nan else float((history.types == 1).mean())
        scores = tuple(Score(rule, share, share, share, {"0.5": float(request.seed % 97)}, 8) for rule in self.rules)
        gaps = {"0.5": float(history.times.sum()), "0.9": float(history.start or 0.0)}
        return Forecast(gaps, {"bad": share}, {"bad": {"mean": float(len(history))}}, scores, ())


@pytest.fixture
def engine() -> type[Engine]:
    return Engine


@pytest.fixture
def drive() -> Callable[..., Driver]:
    """A driver over an Engine, which the options of the engine and the driver describe together."""

    def build(**options: object) -> Driver:
        of_engine = {name: options.pop(name) for name in list(options) if name in Engine.__dataclass_fields__}
        engine = Engine(**of_engine)  # type: ignore[arg-type]
        rules = [Rule({"bad"}, horizon=60, threshold=0.5, clear=0.3, name=name) for name in engine.rules]
        return Driver(engine, rules, **options)  # type: ignore[arg-type]

    return build


@pytest.fixture
def event() -> Callable[..., bytes]:
    """The JSON of an event."""

    def build(entity: str, time: object, type: str = "ok", **more: object) -> bytes:
        return orjson.dumps({"entity": entity, "time": time, "type": type, **more})

    return build
