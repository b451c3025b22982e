"""Slots of many entities, packed: a table in memory that takes 9 to 14 bytes an event, 16 to 21 where events have ids.

A slot has an offset, a time, a type and, where the event has an id, an identity. Of offsets and times the difference to a base
of the entity's is kept, in 4 bytes each: times as whole seconds or, if need be, milliseconds. A time that is neither takes the 8
bytes of a float, a type above 255 two bytes, an identity its 7.
"""

from __future__ import annotations

import itertools
import math
import struct
import sys
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from faust.stores import memory
from faust.types import TP, EventT
from faust.types.stores import StoreT

from stream_tpp.history import IDENTITY_BYTES, Slot
from stream_tpp.operators.agents import ChangelogTable
from stream_tpp.operators.histories import entity_of, partition_of, slot_key

# A layout's number, the offset and the time (in ticks) of the base.
HEAD = struct.Struct("<BQq")
SCALES = (1, 1000)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the slots of an entity are packed. `empty` is the offset of a place that holds nothing; times are whole numbers
    of 1/`scale` seconds, and floats where that is 0.
    """

    number: int
    empty: int
    scale: int
    identified: bool
    record: struct.Struct

    def pack(self, base: int, since: int, slot: Slot | None) -> bytes:
        """The record of a slot in a ring whose base is offset `base`, tick `since`. Raises struct.error where it does not fit."""
        if slot is None:
            fields: tuple[Any, ...] = (self.empty, 0, 0)
        else:
            time = slot.time if self.scale == 0 else _ticks(slot.time, self.scale) - since
            fields = slot.offset - base, time, slot.type
            if fields[0] == self.empty or (slot.identity and not self.identified):
                raise struct.error("no place for such an offset, or for an identity")
        if self.identified:
            return self.record.pack(*fields, (slot.identity if slot else 0).to_bytes(IDENTITY_BYTES, "little"))
        return self.record.pack(*fields)

    def slot(self, base: int, since: int, fields: Sequence[Any]) -> Slot | None:
        """The slot of an unpacked record."""
        if fields[0] == self.empty:
            return None
        time = fields[1] if self.scale == 0 else (since + fields[1]) / self.scale
        return Slot(base + fields[0], time, fields[2], int.from_bytes(fields[3], "little") if self.identified else 0)


def _layout(number: int, wide: bool, scale: int, many: bool, identified: bool) -> Layout:
    columns = ["Q" if wide else "I", "i" if scale else "d", "H" if many else "B", f"{IDENTITY_BYTES}s" if identified else ""]
    return Layout(number, (1 << 64 if wide else 1 << 32) - 1, scale, identified, struct.Struct("<" + "".join(columns)))


CHOICES = list(itertools.product((False, True), (*SCALES, 0), (False, True), (False, True)))
LAYOUTS = [_layout(number, *choice) for number, choice in enumerate(CHOICES)]


class PackedSlots(MutableMapping[bytes, bytes]):
    """A mapping from slot keys to slots as `Slot.pack` writes them; in memory all of an entity's are one bytes object.

    That is a head and a record for each place, in the narrowest layout that held all slots when one came that did not fit.
    """

    def __init__(self) -> None:
        self._packed: dict[bytes, bytes] = {}

    def __getitem__(self, key: bytes) -> bytes:
        entity, place = entity_of(key)
        slot = _slot(self._packed[entity], place)
        if slot is None:
            raise KeyError(key)
        return slot.pack()

    def __setitem__(self, key: bytes, value: bytes) -> None:
        entity, place = entity_of(key)
        self._put(entity, place, Slot.unpack(value), self._packed.get(entity))

    def offer(self, key: bytes, value: bytes) -> None:
        """Put a slot in its place, unless a later event has it."""
        entity, place = entity_of(key)
        slot, packed = Slot.unpack(value), self._packed.get(entity)
        if packed is None or slot.offset >= _offset(packed, place):
            self._put(entity, place, slot, packed)

    def _put(self, entity: bytes, place: int, slot: Slot, packed: bytes | None) -> None:
        packed = packed or HEAD.pack(0, slot.offset, round(slot.time))
        try:
            self._packed[entity] = _with(packed, place, slot)
        except struct.error:
            slots = list(_slots(packed))
            slots += [None] * (place + 1 - len(slots))
            slots[place] = slot
            self._packed[entity] = _laid_out(slots)

    def __delitem__(self, key: bytes) -> None:
        raise TypeError("slots are written over, never deleted")

    def __iter__(self) -> Iterator[bytes]:
        for entity, packed in self._packed.items():
            for place, slot in enumerate(_slots(packed)):
                if slot is not None:
                    yield slot_key(entity, place)

    def __len__(self) -> int:
        return sum(slot is not None for packed in self._packed.values() for slot in _slots(packed))

    def entities(self) -> int:
        """How many entities have a slot."""
        return len(self._packed)

    def size(self) -> int:
        """What the entities' names and slots take in memory, without the dictionary's own."""
        return sum(sys.getsizeof(entity) + sys.getsizeof(packed) for entity, packed in self._packed.items())

    def stored(self, entity: bytes) -> list[Slot]:
        """The slots of an entity, by place, up to the first that holds nothing."""
        found: list[Slot] = []
        for slot in _slots(self._packed.get(entity, b"")):
            if slot is None:
                break
            found.append(slot)
        return found

    def keep(self, partitions: set[int]) -> None:
        """Let go of the entities of all other partitions."""
        self._packed = {entity: packed for entity, packed in self._packed.items() if partition_of(entity) in partitions}

    def clear(self) -> None:
        self._packed.clear()


def _head(packed: bytes) -> tuple[Layout, int, int]:
    number: int
    number, base, since = HEAD.unpack_from(packed)
    return LAYOUTS[number], base, since


def _with(packed: bytes, place: int, slot: Slot) -> bytes:
    """The entity's slots with one more, or with another in its place. Raises struct.error where it does not fit."""
    layout, base, since = _head(packed)
    size = layout.record.size
    at = HEAD.size + place * size
    record = layout.pack(base, since, slot)
    missing = at - len(packed)
    if missing < 0:
        return packed[:at] + record + packed[at + size :]
    return packed + layout.pack(base, since, None) * (missing // size) + record if missing else packed + record


def _slot(packed: bytes, place: int) -> Slot | None:
    layout, base, since = _head(packed)
    at = HEAD.size + place * layout.record.size
    return layout.slot(base, since, layout.record.unpack_from(packed, at)) if at < len(packed) else None


def _offset(packed: bytes, place: int) -> int:
    """The offset of the slot at the place, -1 where there is none."""
    layout, base, _ = _head(packed)
    at = HEAD.size + place * layout.record.size
    if at >= len(packed):
        return -1
    offset: int = layout.record.unpack_from(packed, at)[0]
    return -1 if offset == layout.empty else base + offset


def _slots(packed: bytes) -> Iterator[Slot | None]:
    if packed:
        layout, base, since = _head(packed)
        for fields in layout.record.iter_unpack(memoryview(packed)[HEAD.size :]):
            yield layout.slot(base, since, fields)


def _laid_out(slots: Sequence[Slot | None]) -> bytes:
    """The slots, of which there is one at least, in the narrowest layout that holds them."""
    held = [slot for slot in slots if slot is not None]
    base = min(slot.offset for slot in held)
    wide = max(slot.offset for slot in held) - base >= (1 << 32) - 1
    scale, since = _clock([slot.time for slot in held])
    many, identified = any(slot.type > 255 for slot in held), any(slot.identity for slot in held)
    layout = LAYOUTS[CHOICES.index((wide, scale, many, identified))]
    return HEAD.pack(layout.number, base, since) + b"".join(layout.pack(base, since, slot) for slot in slots)


def _clock(times: Sequence[float]) -> tuple[int, int]:
    """The least scale at which all times are whole numbers that lie within 4 bytes of one of them, and that one; else 0, 0."""
    for scale in SCALES:
        try:
            ticks = [_ticks(time, scale) for time in times]
        except struct.error:
            continue
        since = ticks[0]
        if min(ticks) - since >= -(1 << 31) and max(ticks) - since < 1 << 31:
            return scale, since
    return 0, 0


def _ticks(time: float, scale: int) -> int:
    """How many 1/`scale` seconds the time is. Raises struct.error where that is no whole number, or means another float."""
    ticks = round(time * scale)
    if ticks / scale != time or (not ticks and math.copysign(1.0, time) < 0):
        raise struct.error("no whole number")
    return ticks


class SlotStore(memory.Store[bytes, bytes]):
    """Faust's store in memory with slots packed; it keeps the partitions that are this worker's, or that it stands by for."""

    data: PackedSlots

    def __post_init__(self) -> None:
        self.data = PackedSlots()

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]], to_key: Any, to_value: Any) -> None:
        for event in batch:
            self.data[to_key(event.key)] = to_value(event.value)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        self.data.keep({tp.partition for tp in active_tps | standby_tps})


class Written(Protocol):
    """A record of a changelog."""

    key: Any
    value: Any


class SlotTable(ChangelogTable):
    """The table of histories; in memory its slots are packed."""

    @property
    def in_memory(self) -> bool:
        return isinstance(self.data, SlotStore)

    @property
    def entities(self) -> int | None:
        """How many entities have a history here; None where the store is not in memory."""
        return self.data.data.entities() if isinstance(self.data, SlotStore) else None

    def restore(self, records: Iterable[Written]) -> None:
        """Put in what lies in the changelog; in memory only."""
        assert isinstance(self.data, SlotStore)
        slots = self.data.data
        for record in records:
            if record.value:
                slots.offer(record.key, record.value)

    def _new_store_by_url(self, url: Any) -> StoreT[bytes, bytes]:
        store = super()._new_store_by_url(url)
        return SlotStore(url, self.app, self, loop=self.loop) if isinstance(store, memory.Store) else store

    def stored(self, entity: bytes, places: int) -> Iterable[Slot]:
        """The slots of an entity, by place, up to the first of at most `places` that holds nothing."""
        if isinstance(self.data, SlotStore):
            return self.data.data.stored(entity)
        with self._storing():
            raws = (self.data.get(slot_key(entity, place)) for place in range(places))
            return [Slot.unpack(raw) for raw in itertools.takewhile(bool, raws) if raw]
