"""Histories from which samplers are compared: cut out of a log's own, some of them quiet for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History


@dataclass(frozen=True, slots=True)
class Prompt:
    """A history, and the time now (seconds): nothing has happened between its last event and then."""

    history: History
    now: float

    def first(self, count: int) -> Prompt:
        """Now as it was at the `count`-th event; the prompt itself where it has no more."""
        if len(self.history) <= count:
            return self
        early = History(self.history.times[:count], self.history.types[:count], self.history.start)
        return Prompt(early, float(early.times[-1]))


def choose_prompts(histories: Mapping[str, History], count: int, seed: int) -> list[Prompt]:
    """`count` prompts from the histories of a log, the same for the same seed.

    The entities take turns in a random order. Each history is cut after an event drawn at random; half of them have been
    quiet for a random part of the gap that followed. Raises StreamTppError where there are no events.
    """
    rng = np.random.default_rng(seed)
    entities = [history for history in histories.values() if len(history)]
    if not entities:
        raise StreamTppError("There is no history to go on from: the log has no event of a type that the model knows.")
    order = rng.permutation(len(entities))
    return [_cut(entities[order[place % len(order)]], rng) for place in range(count)]


def _cut(history: History, rng: np.random.Generator) -> Prompt:
    length = int(rng.integers(1, len(history) + 1))
    waited, still_quiet = rng.random(), rng.random() < 0.5
    now = float(history.times[length - 1])
    if still_quiet and length < len(history):
        now += waited * float(history.times[length] - history.times[length - 1])
    return Prompt(History(history.times[:length], history.types[:length], history.start), now)
