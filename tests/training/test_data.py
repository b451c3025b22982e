"""A split keeps the future out of training, and every event that counts is counted once."""

import numpy as np
import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.processes import paper_process, simulate
from stream_tpp.training.data import Batch, Crops, Observed, fit_gap_scale, mean_gap, split_log, split_simulated

SCALE = GapScale(0.0, 1.0, 1e-9)


def log(entities: int, events: int) -> list[Event]:
    random = np.random.default_rng(0)
    made = []
    for entity in range(entities):
        times = np.cumsum(random.exponential(10.0, events))
        made += [Event(f"e{entity}", float(t), "ab"[int(random.integers(2))]) for t in times]
    return made


def sequence(size: int, scored_from: int = 0, end: float | None = None, start: float | None = None) -> Observed:
    return Observed(History(np.arange(size) + 100.0, np.arange(size) % 3, start), scored_from, end)


def counted(batches: list[Batch]) -> list[float]:
    """Times of the events whose type counts."""
    return sorted(t for b in batches for t in b.histories.block.times[:, 1:][b.types].tolist())


def test_until_keeps_later_events_out_of_training_and_tests_on_them_alone() -> None:
    split = split_log(log(30, 40), until=200.0)
    for part in (split.train, split.validation):
        assert all((observed.history.times < 200.0).all() and observed.end == 200.0 for observed in part)
    for observed in split.test:
        assert (observed.history.times[observed.scored_from :] >= 200.0).all()
        assert (observed.history.times[: observed.scored_from] < 200.0).all()
    assert sum(len(o.history) - o.scored_from for o in split.test) == sum(e.time >= 200.0 for e in log(30, 40))


def test_without_until_an_entity_is_in_one_part_alone() -> None:
    split = split_log(log(40, 5))
    assert [len(part) for part in (split.train, split.validation, split.test)] == [32, 4, 4]
    starts = [o.history.times[0] for part in (split.train, split.validation, split.test) for o in part]
    assert len(set(starts)) == 40


def test_few_entities_are_split_by_time() -> None:
    split = split_log(log(2, 100))
    sizes = [sum(len(o.history) - o.scored_from for o in part) for part in (split.train, split.validation, split.test)]
    assert sizes == [160, 20, 20]


def test_the_vocabulary_is_that_of_training_and_other_types_are_counted_out() -> None:
    events = [*log(1, 50), Event("e0", 1e6, "never seen")]
    split = split_log(events, until=1e5)
    assert (split.types, split.left_out) == (("a", "b"), 1)
    assert len(split.test[0].history) == 50


def test_an_unsorted_log_is_the_log_sorted() -> None:
    events = log(3, 50)
    shuffled = [events[i] for i in np.random.default_rng(1).permutation(len(events))]
    for one, other in zip(split_log(events).train, split_log(shuffled).train, strict=True):
        assert np.array_equal(one.history.times, other.history.times)


def test_a_log_with_nothing_to_learn_from_is_refused() -> None:
    for events, until in (([], None), (log(1, 5), 0.0)):
        with pytest.raises(StreamTppError, match="nothing to learn from"):
            split_log(events, until)


def test_ties_have_a_gap_of_half_the_smallest() -> None:
    observed = Observed(History(np.array([0.0, 0.0, 4.0, 10.0]), np.zeros(4, np.int64)))
    assert fit_gap_scale([observed]).floor == 2.0
    assert mean_gap([observed]) == pytest.approx(10 / 3)


@pytest.mark.parametrize("window", [1, 4, 7, 100])
def test_every_scored_event_counts_once_in_an_epoch_and_in_a_judgement(window: int) -> None:
    sequences = [sequence(23), sequence(5, scored_from=2), sequence(1), sequence(9, scored_from=8), sequence(3, scored_from=3)]
    expected = sorted(t for s in sequences for t in s.history.times[s.scored_from :])
    crops = Crops(sequences, SCALE, 3, window, batch_size=2)
    assert counted(list(crops.judged())) == expected
    for seed in range(5):
        epoch = crops.epoch(np.random.default_rng(seed))
        assert counted(epoch) == expected
        assert max(b.histories.block.y.shape[1] for b in epoch) <= window + 1


def test_a_crop_begins_behind_the_event_before_it() -> None:
    for batch in Crops([sequence(30)], SCALE, 3, 6, 1).epoch(np.random.default_rng(0)):
        bos, first = batch.histories.block.times[0, :2].tolist()
        inside = first > 100.0
        assert bos == (first - 1 if inside else first)
        assert bool(batch.gaps[0, 0]) == (inside and bool(batch.types[0, 0]))
        assert batch.histories.block.types[0, 0] == 3


def test_the_first_gap_counts_where_the_start_is_known() -> None:
    for start, known in ((None, False), (99.0, True)):
        (batch,) = Crops([sequence(4, start=start)], SCALE, 3, 6, 1).judged()
        assert batch.gaps[0].tolist() == [known, True, True, True]
        assert batch.types[0].tolist() == [True] * 4


def test_the_quiet_time_counts_after_the_last_event_alone() -> None:
    batches = Crops([sequence(30, end=150.0), sequence(30)], SCALE, 3, 6, 1).epoch(np.random.default_rng(0))
    known = [b for b in batches if b.quiet[0] > -torch.inf]
    assert len(known) == 1
    assert float(known[0].quiet[0].exp()) == pytest.approx(150.0 - 129.0)
    assert float(known[0].histories.last.times[0, 0]) == 129.0


def test_simulated_sequences_keep_both_ends_of_their_windows() -> None:
    split = split_simulated(simulate(paper_process("hawkes"), sequences=20), types=1)
    assert [len(part) for part in (split.train, split.validation, split.test)] == [16, 2, 2]
    assert all(o.history.start == 0.0 and o.end == 100.0 for o in split.train)
