"""Rolling histories: one small table record a slot, a ring of slots for each entity."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence

from stream_tpp.event import Event, InvalidEvent
from stream_tpp.history import History, Ring, Slot, identity_of
from stream_tpp.operators.records import Source, entity_key


class NotCommitted(Exception):
    """The ring can't take the event before the offsets up to and with `offset` are committed. Nothing has changed."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"offset {offset} is not committed yet")
        self.offset = offset


class Histories:
    """The histories of all entities of this worker's partitions.

    `table` holds the slots (a Faust table: a write goes to the changelog under a key of at most 70 bytes, so compaction
    keeps exactly the ring). Rings in use are kept decoded, the `most_rings` most recently active of them; any other is
    read from the table when its entity returns.

    What `absorb` answers for an event is decided by what arrived before it, so a redelivered event is answered as it
    was the first time.
    """

    def __init__(
        self,
        table: MutableMapping[bytes, bytes],
        *,
        window: int = 256,
        slack: int = 1024,
        grace: float = 86_400.0,
        reorder: int = 64,
        most_rings: int = 10_000,
        stored: Callable[[bytes], Iterable[Slot]] | None = None,
    ) -> None:
        """`stored` gives the slots of an entity by place, where the table knows a quicker way than one slot at a time.

        `window` events a model sees, `slack` more for redelivery and `reorder` for late events (see Ring), `grace` seconds an
        event may be late.
        """
        self.table = table
        self.window = window
        self.slack = slack
        self.reorder = reorder
        self.grace = grace
        self.most_rings = most_rings
        self._stored = stored or self._one_by_one
        self._rings: OrderedDict[bytes, Ring] = OrderedDict()

    def absorb(self, event: Event, type: int, source: Source, committed: int) -> tuple[History, bool] | None:
        """Take in the event: its history up to and with it, and whether it had been absorbed before (redelivered).

        None for a repeat: an event whose id came before. `committed`: offsets below it are committed. Raises
        InvalidEvent (too_late, stale_offset) and NotCommitted: then it does so for all later events of the entity, whatever
        they are, until more is committed.
        """
        key = entity_key(source.partition, event.entity)
        ring = self._ring(key)
        found = ring.find(source.offset)
        if found is not None:
            # Written again: a table kept on disk may hold what its changelog lost in the crash.
            self._write(key, *found)
            return ring.as_of(source.offset), True
        if source.offset > ring.mark and ring.must_be_committed >= committed:
            raise NotCommitted(ring.must_be_committed)
        identity = identity_of(event.id)
        if ring.holds_identity(identity, before=source.offset):
            return None
        newest = ring.newest_time(before=source.offset)
        if event.time < newest - self.grace:
            raise InvalidEvent(
                "too_late",
                f"The event is {newest - event.time:.6g} s older than its entity's newest; {self.grace:g} s are allowed.",
            )
        if source.offset <= ring.mark:
            raise InvalidEvent(
                "stale_offset",
                f"Offset {ring.mark} of this partition was absorbed long before: the topic was made anew and its "
                "histories were not. Delete their changelog topic, or give the app another id.",
            )
        slot = Slot(source.offset, event.time, type, identity)
        self._write(key, ring.place(), slot)
        ring.absorb(slot)
        return ring.as_of(source.offset), False

    def forget(self) -> None:
        """Drop the decoded rings: after a rebalance the table may hold what other workers wrote."""
        self._rings.clear()

    def _write(self, key: bytes, place: int, slot: Slot) -> None:
        self.table[slot_key(key, place)] = slot.pack()

    def _ring(self, key: bytes) -> Ring:
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = Ring(self.window, self.slack, self._stored(key), self.reorder)
            if len(self._rings) > self.most_rings:
                self._rings.popitem(last=False)
        self._rings.move_to_end(key)
        return ring

    def _one_by_one(self, key: bytes) -> Iterator[Slot]:
        # Slots fill in order, so the first that is missing ends a ring that has not come round yet.
        for place in range(self.window + self.reorder + self.slack):
            raw = self.table.get(slot_key(key, place))
            if raw is None:
                return
            yield Slot.unpack(raw)


def slot_key(entity: bytes, place: int) -> bytes:
    return entity + place.to_bytes(2)


def entity_of(slot_key: bytes) -> tuple[bytes, int]:
    """The entity (as `entity_key` names it) and the place in its ring."""
    return slot_key[:-2], int.from_bytes(slot_key[-2:])


def partition_of(entity: bytes) -> int:
    return int.from_bytes(entity[:4])


def slot_mark(slot: bytes) -> int:
    """The offset of the event in a table value: a place in a ring is written over by later events alone."""
    return Slot.unpack(slot).offset


def layout_of(window: int, slack: int, reorder: int, types: Sequence[str]) -> str:
    """Eight hex digits that change with whatever slots depend on; part of a table's name, so that none is misread."""
    text = "\0".join([str(window), str(slack), str(reorder), *types])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
