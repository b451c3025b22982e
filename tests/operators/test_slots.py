"""Slots in memory: what was put in comes out, in few bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.history import Slot, identity_of
from stream_tpp.operators.histories import slot_key
from stream_tpp.operators.records import entity_key
from stream_tpp.operators.slots import PackedSlots

offsets = st.one_of(st.integers(0, 1000), st.integers(0, (1 << 62) - 1))
times = st.one_of(
    st.integers(-(10**10), 10**11).map(float),
    st.integers(17 * 10**11, 17 * 10**11 + 10**7).map(lambda ms: ms / 1000),
    st.floats(-1e10, 1e11),
)
types = st.one_of(st.integers(0, 255), st.integers(0, 65535))
slots = st.builds(Slot, offsets, times, types, st.one_of(st.just(0), st.integers(1, (1 << 56) - 1)))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), slots), max_size=60))
def test_it_holds_what_a_dictionary_would(writes: list[tuple[str, int, Slot]]) -> None:
    packed, plain = PackedSlots(), {}
    for name, place, slot in writes:
        key = slot_key(entity_key(3, name), place)
        packed[key] = plain[key] = slot.pack()
    assert dict(packed) == plain
    assert len(packed) == len(plain)
    assert all(packed[key] == value for key, value in plain.items())
    for name in "abc":
        entity, held = entity_key(3, name), []
        while (key := slot_key(entity, len(held))) in plain:
            held.append(Slot.unpack(plain[key]))
        assert packed.stored(entity) == held


@pytest.mark.parametrize(
    ("step", "types", "ids", "bytes_each"),
    [
        (86_400.0, 256, False, 9),
        (0.25, 256, False, 9),
        (1 / 3, 256, False, 13),
        (1 / 3, 257, False, 14),
        (86_400.0, 256, True, 16),
        (0.25, 256, True, 16),
        (1 / 3, 256, True, 20),
    ],
)
def test_an_event_takes_few_bytes_by_what_its_ring_holds(step: float, types: int, ids: bool, bytes_each: int) -> None:
    packed = PackedSlots()
    for number in range(64):
        identity = identity_of(str(number)) if ids else 0
        slot = Slot((1 << 40) + 1000 * number, 1.7e9 + step * number, (number * 7) % types if number else types - 1, identity)
        packed[slot_key(entity_key(0, "twelve-bytes"), number)] = slot.pack()
    (value,) = packed._packed.values()
    assert len(value) == 17 + 64 * bytes_each


def test_a_ring_that_goes_on_for_long_stays_narrow() -> None:
    packed, key = PackedSlots(), entity_key(0, "a")
    for number in range(1000):
        # Past what 4 bytes hold of offsets, and of milliseconds.
        packed[slot_key(key, number % 64)] = Slot(number << 24, number * 1e4 + 0.25, 3, 0).pack()
    (value,) = packed._packed.values()
    assert len(value) == 17 + 64 * 9
    assert [slot.offset >> 24 for slot in packed.stored(key)] == [*range(960, 1000), *range(936, 960)]


def test_a_slot_that_is_offered_never_takes_the_place_of_a_later_one() -> None:
    packed, key = PackedSlots(), slot_key(entity_key(0, "a"), 1)
    for offset, held in ((5, 5), (3, 5), (5, 5), (8, 8)):
        packed.offer(key, Slot(offset, 1.0, 0, 0).pack())
        assert Slot.unpack(packed[key]).offset == held


def test_only_the_partitions_at_hand_are_kept() -> None:
    packed = PackedSlots()
    keys = [slot_key(entity_key(partition, "a"), 0) for partition in range(4)]
    for key in keys:
        packed[key] = Slot(1, 1.0, 0, 0).pack()
    packed.keep({1, 3})
    assert list(packed) == [keys[1], keys[3]]


def test_a_place_that_holds_nothing_and_bytes_that_are_no_slot_are_errors() -> None:
    packed = PackedSlots()
    packed[slot_key(entity_key(0, "a"), 2)] = Slot(1, 1.0, 0, 0).pack()
    for key in (slot_key(entity_key(0, "a"), 0), slot_key(entity_key(0, "a"), 3), slot_key(entity_key(0, "b"), 0)):
        assert key not in packed
    with pytest.raises(struct.error):
        packed[slot_key(entity_key(0, "a"), 0)] = b"short"
