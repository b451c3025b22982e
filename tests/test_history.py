"""Rings keep what a redelivered event has to see again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.history import Ring, Slot, identity_of


def ring_of(times: list[float], window: int = 4, slack: int = 3) -> Ring:
    ring = Ring(window, slack)
    for number, time in enumerate(times):
        ring.absorb(Slot(10 * number, time, number % 3, identity_of(f"e{number}")))
    return ring


def test_a_slot_is_26_bytes_and_comes_back_whole() -> None:
    slot = Slot(offset=2**40, time=1.7e9 + 0.123456, type=65535, identity=identity_of("é\0"))
    assert len(slot.pack()) == 26
    assert Slot.unpack(slot.pack()) == slot


def test_a_history_is_the_latest_events_by_time() -> None:
    history = ring_of([1.0, 2.0, 3.0]).as_of(20)
    assert history.times.tolist() == [1.0, 2.0, 3.0]
    assert history.types.tolist() == [0, 1, 2]
    assert history.start is None


def test_a_late_event_is_put_in_its_place_and_ties_stay_in_order_of_arrival() -> None:
    history = ring_of([1.0, 5.0, 3.0, 5.0]).as_of(30)
    assert history.times.tolist() == [1.0, 3.0, 5.0, 5.0]
    assert history.types.tolist() == [0, 2, 1, 0]


def test_a_history_that_slid_starts_at_the_event_before_it() -> None:
    history = ring_of([1.0, 2.0, 3.0, 4.0, 5.0]).as_of(40)
    assert history.times.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert history.start == 1.0


def test_a_history_counts_the_events_that_slid_out() -> None:
    ring = ring_of([float(n) for n in range(7)])
    # Places in the ring of 7 slots: the count goes back to 0 where the ring begins anew.
    assert [ring.as_of(10 * n).first for n in range(7)] == [0, 0, 0, 0, 1, 2, 3]
    ring.absorb(Slot(70, 7.0, 0, 0))
    assert (ring.as_of(60).first, ring.as_of(70).first) == (3, 4)
    for n in (8, 9, 10):
        ring.absorb(Slot(10 * n, float(n), 0, 0))
    assert (ring.as_of(90).first, ring.as_of(100).first) == (6, 0)


def test_events_that_came_later_are_not_seen() -> None:
    ring = ring_of([1.0, 2.0, 3.0])
    assert ring.as_of(10).times.tolist() == [1.0, 2.0]
    assert ring.as_of(9).times.tolist() == [1.0]
    assert len(ring.as_of(-1)) == 0


def test_the_time_that_counts_as_newest_is_that_before_the_event() -> None:
    ring = ring_of([1.0, 9.0, 3.0])
    assert ring.newest_time(before=20) == 9.0
    assert ring.newest_time(before=10) == 1.0
    assert ring.newest_time(before=0) == -np.inf


def test_an_id_is_known_from_the_event_that_bore_it_on() -> None:
    ring = ring_of([1.0, 2.0])
    assert ring.holds_identity(identity_of("e1"), before=20)
    assert not ring.holds_identity(identity_of("e1"), before=10)
    assert not ring.holds_identity(identity_of(None), before=20)


def test_an_event_is_absorbed_only_after_those_before_it() -> None:
    with pytest.raises(ValueError, match="not above the mark 10"):
        ring_of([1.0, 2.0]).absorb(Slot(10, 3.0, 0, 0))


@given(
    times=st.lists(st.floats(0, 100), min_size=1, max_size=60),
    window=st.integers(1, 6),
    slack=st.integers(2, 6),
)
def test_whatever_is_not_committed_sees_the_history_that_it_saw_first(times: list[float], window: int, slack: int) -> None:
    ring, first_seen = Ring(window, slack), {}
    for offset, time in enumerate(times):
        committed = ring.must_be_committed + 1
        ring.absorb(Slot(offset, time, offset % 5, 0))
        first_seen[offset] = ring.as_of(offset)
        for earlier in range(committed, offset + 1):
            again, first = ring.as_of(earlier), first_seen[earlier]
            assert again.times.tolist() == first.times.tolist()
            assert again.types.tolist() == first.types.tolist()
            assert (again.start, again.first) == (first.start, first.first)


@given(count=st.integers(0, 30))
def test_a_ring_read_back_from_its_slots_is_the_same_ring(count: int) -> None:
    ring, places = Ring(4, 3), {}
    for offset in range(count):
        slot = Slot(offset, float(offset), 0, 0)
        places[ring.place()] = slot
        ring.absorb(slot)
    again = Ring(4, 3, [places[place] for place in sorted(places)])
    assert (again.mark, again.place(), again.must_be_committed) == (ring.mark, ring.place(), ring.must_be_committed)
    assert again.as_of(count).times.tolist() == ring.as_of(count).times.tolist()
