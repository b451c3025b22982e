"""What rolling histories cost: memory of many entities, and how fast a worker that starts anew has them back.

    python benchmarks/histories.py --out benchmarks/results/histories.json
    python benchmarks/histories.py --broker localhost:9092 --out benchmarks/results/histories.json

Without a broker, memory alone. With one, a changelog of `--restore` entities is written and a worker in this process restores it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_tpp.event import Event
from stream_tpp.history import Slot
from stream_tpp.operators.histories import Histories, slot_key
from stream_tpp.operators.records import Source, entity_key
from stream_tpp.operators.slots import PackedSlots
from stream_tpp.topologies.connection import Connection

TYPES = ["a", "b"]
WINDOW, SLACK, PARTITIONS = 256, 256, 4


def main() -> None:
    options = _options()
    found: dict[str, Any] = {"machine": f"{os.cpu_count()} cores", "command": " ".join(sys.argv)}
    found |= memory(options.entities, options.events)
    if options.broker:
        found |= asyncio.run(restore(Connection(options.broker), options.restore, options.events, options.store))
    print(json.dumps(found, indent=2))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


def memory(entities: int, events: int) -> dict[str, Any]:
    """Bytes of this process for so many entities of so many events each, and what a returning entity's ring costs to read."""
    before, began = _resident(), time.perf_counter()
    packed = PackedSlots()
    # An event of each in turn, as they come in life.
    for place in range(events):
        for number in range(entities):
            packed[slot_key(_entity(number), place)] = _slot(place * entities + number)
    took, grown = time.perf_counter() - began, _resident() - before
    histories = Histories(packed, window=WINDOW, slack=SLACK, most_rings=1000, stored=packed.stored)
    began = time.perf_counter()
    returning = range(0, entities, max(1, entities // 2000))
    for number in returning:
        source = Source("events", number % PARTITIONS, entities * events + number)
        histories.absorb(Event(_name(number), 1.8e9, "a"), 0, source, committed=1 << 62)
    back = time.perf_counter() - began
    return {
        "entities": entities,
        "events_of_each": events,
        "resident_bytes": grown,
        "bytes_per_event": round(grown / (entities * events), 2),
        "slots_written_per_s": round(entities * events / took),
        "changelog_bytes_per_event": len(slot_key(_entity(0), 0)) + len(_slot(0)),
        "returning_entities_per_s": round(len(returning) / back),
    }


async def restore(connection: Connection, entities: int, events: int, store: str) -> dict[str, Any]:
    """Seconds from the start of a worker until its histories are there."""
    # Faust is imported by whoever asks for it.
    from stream_tpp.topologies import early_warning
    from stream_tpp.topologies.settings import Histories as HistorySettings
    from stream_tpp.topologies.settings import Settings, Topics, Worker
    from stream_tpp.topologies.topics import declare
    from stream_tpp.warning.rule import Rule

    name = f"bench-{uuid.uuid4().hex[:8]}"
    settings = Settings(
        kafka=connection,
        topics=Topics(*(f"{name}-{role}" for role in ("e", "f", "w", "a", "d")), partitions=PARTITIONS),
        histories=HistorySettings(window=WINDOW, slack=SLACK, store=store, folder=Path(tempfile.gettempdir(), name)),
        worker=Worker(application=name),
        rules=(Rule({"a"}, 60.0, 0.5),),
    )
    app, plugged = early_warning.create(settings, _Silent())
    await declare(connection, early_warning._topics(app, settings))
    changelog = plugged.histories.changelog_topic_name
    async with AIOKafkaProducer(**connection.client_options(), linger_ms=20, max_batch_size=1 << 18) as producer:
        for place in range(events):
            for number in range(entities):
                key = slot_key(_entity(number), place)
                await producer.send(changelog, _slot(place * entities + number), key, partition=number % PARTITIONS)
        await producer.flush()
    began, worked = time.perf_counter(), time.process_time()
    await app.start()
    while not app.tables.recovery.completed.is_set() or app.in_recovery:
        await asyncio.sleep(0.05)
    took, worked = time.perf_counter() - began, time.process_time() - worked
    data = plugged.histories.data
    held = data.data.entities() if isinstance(data.data, PackedSlots) else entities
    await app.stop()
    assert held == entities, f"{held} of {entities} entities came back"
    return {
        "store": store,
        "restored_entities": entities,
        "restore_seconds": round(took, 2),
        "restore_cpu_seconds": round(worked, 2),
        "restored_entities_per_minute": round(60 * entities / took),
        "restored_slots_per_s": round(entities * events / took),
    }


class _Silent:
    """A forecaster that nobody asks."""

    version, types, window, horizon, paths = "none", TYPES, WINDOW, 60.0, 1

    def forecast(self, requests: Any) -> list[Any]:
        raise AssertionError("Nothing is forecast while histories come back.")


def _name(number: int) -> str:
    return f"entity-{number:05d}" if number < 100_000 else f"e-{number:010d}"


def _entity(number: int) -> bytes:
    return entity_key(number % PARTITIONS, _name(number))


def _slot(offset: int) -> bytes:
    return Slot(offset, 1.7e9 + offset, offset % 2, 0).pack()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=64)
    parser.add_argument("--broker", help="host:port of a Kafka broker, for the restoration")
    parser.add_argument("--restore", type=int, default=20_000, help="entities to restore")
    parser.add_argument("--store", choices=("memory", "rocksdb"), default="memory")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
