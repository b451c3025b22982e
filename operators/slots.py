"""Slots of many entities, packed: a table in memory that takes 14 bytes an event, 22 where events have ids."""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, Protocol

from faust.stores import memory
from faust.types import TP, EventT
from faust.types.stores import StoreT

from stream_tpp.history import Slot
from stream_tpp.operators.agents import ChangelogTable
from stream_tpp.operators.histories import entity_of, partition_of, slot_key

# A layout's number says what a slot has: 1 for offsets too far apart for 32 bits, 2 for identities.
WIDE, IDENTIFIED = 1, 2
LAYOUTS = [
    struct.Struct("<" + ("q" if number & WIDE else "i") + "dH" + ("Q" if number & IDENTIFIED else "")) for number in range(4)
]
HEAD = struct.Struct("<Bq")
NARROWEST, WIDEST = -(1 << 31), -(1 << 63)


class PackedSlots(MutableMapping[bytes, bytes]):
    """A mapping from slot keys to slots as `Slot.pack` writes them; in memory all of an entity's are one bytes object.

    That is a head (layout, base) and for each place the offset less the base, the time, the type and, if any event of the
    entity has an id, its identity. A place that holds nothing yet has the least offset there is.
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
        slot = Slot.unpack(value)
        packed = self._packed.get(entity) or HEAD.pack(0, slot.offset)
        layout, base = HEAD.unpack_from(packed)
        wanted = layout | (WIDE if not NARROWEST < slot.offset - base < -NARROWEST else 0) | (IDENTIFIED if slot.identity else 0)
        if wanted != layout:
            packed, layout = _laid_out(packed, wanted), wanted
        size, at = LAYOUTS[layout].size, HEAD.size + place * LAYOUTS[layout].size
        if at > len(packed):
            packed += _record(layout, base, None) * ((at - len(packed)) // size)
        self._packed[entity] = packed[:at] + _record(layout, base, slot) + packed[at + size :]

    def offer(self, key: bytes, value: bytes) -> None:
        """Put a slot in its place, unless a later event has it."""
        entity, place = entity_of(key)
        packed = self._packed.get(entity)
        held = _slot(packed, place) if packed else None
        if held is None or held.offset <= int.from_bytes(value[:8], "little", signed=True):
            self[key] = value

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


def _record(layout: int, base: int, slot: Slot | None) -> bytes:
    form = LAYOUTS[layout]
    if slot is None:
        filler = (WIDEST if layout & WIDE else NARROWEST, 0.0, 0)
        return form.pack(*filler, 0) if layout & IDENTIFIED else form.pack(*filler)
    if layout & IDENTIFIED:
        return form.pack(slot.offset - base, slot.time, slot.type, slot.identity)
    return form.pack(slot.offset - base, slot.time, slot.type)


def _slot(packed: bytes, place: int) -> Slot | None:
    layout, base = HEAD.unpack_from(packed)
    form = LAYOUTS[layout]
    at = HEAD.size + place * form.size
    return _read(layout, base, form.unpack_from(packed, at)) if at < len(packed) else None


def _slots(packed: bytes) -> Iterator[Slot | None]:
    if packed:
        layout, base = HEAD.unpack_from(packed)
        for fields in LAYOUTS[layout].iter_unpack(memoryview(packed)[HEAD.size :]):
            yield _read(layout, base, fields)


def _read(layout: int, base: int, fields: tuple[Any, ...]) -> Slot | None:
    if fields[0] == (WIDEST if layout & WIDE else NARROWEST):
        return None
    return Slot(base + fields[0], fields[1], fields[2], fields[3] if layout & IDENTIFIED else 0)


def _laid_out(packed: bytes, layout: int) -> bytes:
    _, base = HEAD.unpack_from(packed)
    return HEAD.pack(layout, base) + b"".join(_record(layout, base, slot) for slot in _slots(packed))


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
