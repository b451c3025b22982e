"""From a log to what training reads: sequences, split honestly, and batches of crops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stream_tpp import processes
from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.histories import Histories, pack

_FEW_ENTITIES = 20


@dataclass(frozen=True)
class Observed:
    """One entity's events, of which those from index `scored_from` on count; the earlier ones are only read.

    end: the time (seconds) up to which the entity was observed, None where it is unknown. Where it is known, the quiet time
    after the last event counts as well: a gap that is longer than that.
    """

    history: History
    scored_from: int = 0
    end: float | None = None


@dataclass(frozen=True)
class Split:
    """Sequences to learn from, to stop early by and to report on, over the vocabulary `types`.

    left_out: events of types that do not occur in the training part, and so are in none.
    """

    types: tuple[str, ...]
    train: list[Observed]
    validation: list[Observed]
    test: list[Observed]
    left_out: int


def split_log(events: Iterable[Event], until: float | None = None, seed: int = 0) -> Split:
    """Split a log, in any order, for training.

    With `until` (seconds): learn from the events before it alone, a tenth of the entities kept for validation, and test on the
    events after it. Otherwise by entity, 80 : 10 : 10; logs of fewer than 20 entities by time, at 80 and 90% of the events.
    """
    entities = _by_entity(events)
    if until is not None:
        return _split_at(entities, until, seed)
    if len(entities) >= _FEW_ENTITIES:
        return _split_by_entity(entities, seed)
    return _split_by_time(entities)


def split_simulated(drawn: processes.Split, types: int) -> Split:
    """Sequences drawn from a process of known law, numbered types as names; start and end of their windows are known."""
    train, validation, test = (
        [Observed(History(one.times, one.types, one.window.start), 0, one.window.end) for one in part]
        for part in (drawn.train, drawn.validation, drawn.test)
    )
    return Split(tuple(str(number) for number in range(types)), train, validation, test, 0)


def fit_gap_scale(sequences: Sequence[Observed]) -> GapScale:
    """Mean and deviation of the log gaps. Ties count as half the smallest gap there is, at least a nanosecond."""
    gaps = _gaps(sequences)
    positive = gaps[gaps > 0]
    floor = max(float(positive.min()) / 2, 1e-9) if len(positive) else 1.0
    log_gaps = np.log(np.maximum(gaps, floor)) if len(gaps) else np.zeros(1)
    return GapScale(float(log_gaps.mean()), max(float(log_gaps.std()), 1e-3), floor)


def standardised_gaps(sequences: Sequence[Observed], scale: GapScale) -> Tensor:
    """y of every gap, float64 [n]."""
    return scale.to_y(torch.from_numpy(_gaps(sequences)))


def mean_gap(sequences: Sequence[Observed]) -> float:
    """Seconds; 1 where there is no gap to speak of."""
    gaps = _gaps(sequences)
    return (float(gaps.mean()) if len(gaps) else 0.0) or 1.0


@dataclass(frozen=True)
class Batch:
    """Crops [B, S] and what counts in them: the law at place i is judged on event i + 1.

    gaps, types: bool [B, S - 1], whether that event's gap and type count. quiet: float64 [B], y of the quiet time after the
    last event, -inf where it does not count.
    """

    histories: Histories
    gaps: Tensor
    types: Tensor
    quiet: Tensor


@dataclass(frozen=True)
class _Crop:
    observed: Observed
    first: int
    end: int
    scored_from: int

    @property
    def history(self) -> History:
        whole = self.observed.history
        start = whole.start if self.first == 0 else float(whole.times[self.first - 1])
        return History(whole.times[self.first : self.end], whole.types[self.first : self.end], start)


class Crops:
    """Batches of crops of at most `window` events of given sequences."""

    def __init__(self, sequences: Sequence[Observed], scale: GapScale, types: int, window: int, batch_size: int) -> None:
        self._sequences = [s for s in sequences if s.scored_from < len(s.history)]
        self._scale, self._types, self._window, self._batch_size = scale, types, window, batch_size

    def epoch(self, random: np.random.Generator) -> list[Batch]:
        """Every scored event once, in crops cut at random places, in random order, like lengths together."""
        crops = []
        for observed in self._sequences:
            done = observed.scored_from
            end = done + int(random.integers(1, self._window + 1))
            while done < len(observed.history):
                end = min(end, len(observed.history))
                crops.append(_Crop(observed, max(0, end - self._window), end, done))
                done, end = end, end + self._window
        order = random.permutation(len(crops))
        batches = self._batches([crops[i] for i in order])
        return [self._batch(batches[i]) for i in random.permutation(len(batches))]

    def judged(self) -> Iterator[Batch]:
        """Every scored event once, each behind at least half a window of history (where there is as much)."""
        crops, half = [], max(1, self._window // 2)
        for observed in self._sequences:
            size, scored = len(observed.history), observed.scored_from
            while scored < size:
                end = min(size, max(scored + half, self._window))
                crops.append(_Crop(observed, max(0, end - self._window), end, scored))
                scored = end
        return (self._batch(batch) for batch in self._batches(crops))

    def _batches(self, crops: list[_Crop]) -> list[list[_Crop]]:
        by_length = sorted(crops, key=lambda crop: crop.end - crop.first)
        return [by_length[i : i + self._batch_size] for i in range(0, len(by_length), self._batch_size)]

    def _batch(self, crops: list[_Crop]) -> Batch:
        histories = pack([crop.history for crop in crops], self._scale, self._types, self._window)
        place = torch.arange(histories.block.y.shape[1] - 1)
        scored = torch.tensor([crop.scored_from - crop.first for crop in crops])[:, None]
        counts = (place >= scored) & (place + 1 < histories.lengths[:, None])
        # Where the start of observation is unknown, BOS stands on the first event: there is no gap to judge.
        known = torch.tensor([crop.first > 0 or crop.observed.history.start is not None for crop in crops])[:, None]
        return Batch(histories, counts & (known | (place > 0)), counts, self._quiet(crops))

    def _quiet(self, crops: list[_Crop]) -> Tensor:
        seconds = []
        for crop in crops:
            times, end = crop.observed.history.times, crop.observed.end
            last = crop.end == len(times) and end is not None
            seconds.append(end - times[-1] if last and end is not None else 0.0)
        return self._scale.elapsed_to_y(torch.tensor(seconds, dtype=torch.float64))


def _by_entity(events: Iterable[Event]) -> dict[str, list[Event]]:
    entities: dict[str, list[Event]] = {}
    for event in events:
        entities.setdefault(event.entity, []).append(event)
    if not entities:
        raise StreamTppError("The log holds no events: there is nothing to learn from.")
    for sequence in entities.values():
        sequence.sort(key=lambda event: event.time)
    return dict(sorted(entities.items()))


def _split_at(entities: dict[str, list[Event]], until: float, seed: int) -> Split:
    before = {name: [event for event in sequence if event.time < until] for name, sequence in entities.items()}
    before = {name: sequence for name, sequence in before.items() if sequence}
    if not before:
        raise StreamTppError(f"The log has no events before {until}: there is nothing to learn from.")
    vocabulary = _Vocabulary(before.values())
    names = _shuffled(list(before), seed)
    held = max(1, len(names) // 10) if len(names) > 1 else 0
    return Split(
        vocabulary.types,
        [vocabulary.observed(before[name], end=until) for name in names[held:]],
        [vocabulary.observed(before[name], end=until) for name in names[:held] or names],
        [vocabulary.observed(sequence, scored_from=until) for sequence in entities.values()],
        vocabulary.left_out(entities.values()),
    )


def _split_by_entity(entities: dict[str, list[Event]], seed: int) -> Split:
    names = _shuffled(list(entities), seed)
    tenth = len(names) // 10
    vocabulary = _Vocabulary(entities[name] for name in names[2 * tenth :])
    parts = names[2 * tenth :], names[:tenth], names[tenth : 2 * tenth]
    train, validation, test = ([vocabulary.observed(entities[name]) for name in part] for part in parts)
    return Split(vocabulary.types, train, validation, test, vocabulary.left_out(entities.values()))


def _split_by_time(entities: dict[str, list[Event]]) -> Split:
    times = np.sort([event.time for sequence in entities.values() for event in sequence])
    first, second = (float(times[min(len(times) - 1, int(share * len(times)))]) for share in (0.8, 0.9))
    early = [[event for event in sequence if event.time < first] for sequence in entities.values()]
    if not any(early):
        raise StreamTppError("The log has too few events, or too many at one time, to be split for training.")
    middle = [[event for event in sequence if event.time < second] for sequence in entities.values()]
    vocabulary = _Vocabulary(early)
    return Split(
        vocabulary.types,
        [vocabulary.observed(sequence, end=first) for sequence in early],
        [vocabulary.observed(sequence, scored_from=first) for sequence in middle],
        [vocabulary.observed(sequence, scored_from=second) for sequence in entities.values()],
        vocabulary.left_out(entities.values()),
    )


class _Vocabulary:
    """The types of the training part, in order of name."""

    def __init__(self, sequences: Iterable[list[Event]]) -> None:
        self.types = tuple(sorted({event.type for sequence in sequences for event in sequence}))
        self._index = {name: number for number, name in enumerate(self.types)}

    def observed(self, events: list[Event], scored_from: float = -np.inf, end: float | None = None) -> Observed:
        """`events` by time; those from the time `scored_from` on count."""
        known = [event for event in events if event.type in self._index]
        times = np.array([event.time for event in known], dtype=np.float64)
        types = np.array([self._index[event.type] for event in known], dtype=np.int64)
        return Observed(History(times, types), int(np.searchsorted(times, scored_from)), end)

    def left_out(self, sequences: Iterable[list[Event]]) -> int:
        return sum(event.type not in self._index for sequence in sequences for event in sequence)


def _shuffled(names: list[str], seed: int) -> list[str]:
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def _gaps(sequences: Sequence[Observed]) -> NDArray[np.float64]:
    return np.concatenate([np.diff(observed.history.times) for observed in sequences] or [np.empty(0)])
