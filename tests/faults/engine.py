"""A forecaster double: quick, a function of its request alone, and of whatever mood the test gives it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_tpp.forecast import Forecast, Request
from stream_tpp.warning.score import Score

RULE = "bad within 60 s"


@dataclass
class Double:
    """Scores an entity by the share of "bad" among its latest events.

    `mood` is a file that a running test writes to: "batch 10" takes 10 s a batch, "each 0.01" takes 0.01 s a request, "raise"
    fails, "hang" never answers. An entity whose name begins with "guilty" fails always, one that begins with "nan" has no score.
    """

    mood: Path
    types: tuple[str, ...] = ("ok", "bad")
    window: int = 16
    version: str = "double"
    horizon: float = 60.0
    paths: int = 8

    def forecast(self, requests: Sequence[Request]) -> list[Forecast]:
        self._feel(len(requests))
        if any(request.entity.startswith("guilty") for request in requests):
            raise RuntimeError("this entity has no law")
        return [self._one(request) for request in requests]

    def _feel(self, requests: int) -> None:
        match self.mood.read_text().split():
            case ["batch", seconds]:
                time.sleep(float(seconds))
            case ["each", seconds]:
                time.sleep(float(seconds) * requests)
            case ["raise"]:
                raise RuntimeError("no law holds today")
            case ["hang"]:
                while self.mood.read_text() == "hang":
                    time.sleep(0.05)

    def _one(self, request: Request) -> Forecast:
        history = request.history
        latest = history.types[-5:]
        share = math.nan if request.entity.startswith("nan") else float((latest == 1).mean())
        score = Score(RULE, share, share, share, {"0.5": float(request.seed % 97)}, self.paths)
        # Any other history, and any other order of it, gives other numbers: a redelivery that saw another one shows.
        weighed = float((history.times * (1 + history.types) * range(1, 1 + len(history))).sum())
        gaps = {"0.5": weighed, "0.9": history.start or 0.0}
        return Forecast(gaps, {"bad": share}, {"bad": {"mean": float(len(history))}}, (score,), ())
