"""The histories that the events of a log make, in a model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stream_tpp.event import Event
from stream_tpp.history import History


class Gathered(NamedTuple):
    """A history per entity, in order of first appearance, and how many events were left out for their unknown type."""

    histories: dict[str, History]
    unknown: int


def gather_histories(events: Iterable[Event], types: Sequence[str], until: float | None = None) -> Gathered:
    """Events in any order to histories by time (ties as they came); those after `until` (seconds) are left out."""
    index = {name: number for number, name in enumerate(types)}
    entities: dict[str, tuple[list[float], list[int]]] = {}
    unknown = 0
    for event in events:
        if until is not None and event.time > until:
            continue
        if event.type not in index:
            unknown += 1
            continue
        times, kinds = entities.setdefault(event.entity, ([], []))
        times.append(event.time)
        kinds.append(index[event.type])
    return Gathered({entity: _history(*columns) for entity, columns in entities.items()}, unknown)


def _history(times: list[float], kinds: list[int]) -> History:
    order = np.argsort(np.array(times), kind="stable")
    return History(np.array(times)[order], np.array(kinds, dtype=np.int64)[order])
