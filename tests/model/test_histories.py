"""What a model is fed of a long history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.history import History, Ring, Slot
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.histories import pack

SCALE = GapScale(0.0, 1.0, 1.0)


def read(history: History, window: int) -> list[float]:
    """Times of BOS and the events that are fed."""
    packed = pack([history], SCALE, 1, window)
    return packed.block.times[0, : int(packed.lengths)].tolist()


def past(n: int, first: int | None = None) -> History:
    """An event each second, the first at second 1."""
    return History(np.arange(1.0, n + 1), np.zeros(n, np.int64), 0.0, first)


def test_the_latest_events_stand_behind_the_one_before_them() -> None:
    assert read(past(50), 20) == list(range(30, 51))
    assert read(past(20), 20) == list(range(21))


def test_a_history_that_knows_its_place_begins_at_a_multiple_of_ten() -> None:
    # Event number 0 is at second 1: the first read is number 150, and 9 of the window stay empty.
    assert read(past(241, first=0), 100) == list(range(150, 242))
    assert read(past(250, first=0), 100) == list(range(150, 251))
    assert read(past(251, first=0), 100) == list(range(160, 252))


def test_a_short_window_slides_by_a_tenth_of_it() -> None:
    assert {len(read(past(n, first=0), 30)) - 1 for n in range(30, 90)} == {28, 29, 30}
    assert {len(read(past(n, first=0), 19)) - 1 for n in range(19, 90)} == {19}


def test_a_whole_history_is_read_whole() -> None:
    assert read(past(100, first=0), 100) == list(range(101))


@given(
    window=st.integers(1, 60),
    held=st.integers(1, 60),
    late=st.lists(st.integers(0, 150), max_size=5),
    slack=st.integers(2, 90),
)
def test_what_is_read_of_a_ring_slides_in_steps_and_is_never_much_less_than_the_window(
    window: int, held: int, late: list[int], slack: int
) -> None:
    ring = Ring(held, slack)
    most = min(window, held)
    for number in range(150):
        ring.absorb(Slot(number, number - 30.5 if number in late else float(number), 0, 0))
        kept = len(read(ring.as_of(number), window)) - 1
        assert min(number + 1, most - max(1, most // 10) + 1) <= kept <= min(number + 1, most)


@pytest.mark.parametrize(("window", "held"), [(100, 256), (256, 100), (100, 100)])
def test_nine_of_ten_events_extend_what_was_read(window: int, held: int) -> None:
    ring, before, extended = Ring(held, 44), [0.0], 0
    for number in range(1000):
        ring.absorb(Slot(number, float(number), 0, 0))
        now = read(ring.as_of(number), window)
        if number >= 500:
            extended += now[:-1] == before
        before = now
    # The count of events begins anew where the ring does, at most every 144 events here.
    assert 440 <= extended <= 450
