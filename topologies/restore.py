"""Histories back from their changelog, many records at a time.

Faust's recovery makes several tasks for each record of a changelog: measured, some 2,000 records a second on a busy machine. The
histories in memory are read here by a consumer of their own, in batches, before Faust's recovery begins; it is left what
was written meanwhile.

Where an app processes exactly once, all tables of ours are read so, in any store: a changelog then ends with the mark of a
transaction, and Faust waits 10 s and more for a record behind it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeGuard

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.events import Event
from faust.tables.recovery import Recovery
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list
from faust.types import TP
from faust.types.transports import ConsumerT

from stream_tpp.operators.agents import ChangelogTable
from stream_tpp.operators.slots import SlotTable

log = logging.getLogger(__name__)

KAFKA_PORT = 9092
POLL = 0.2
PARTITION_BYTES = 4 << 20


class BulkRecovery(Recovery):
    """Faust's recovery, after what is ours has been restored in bulk."""

    async def _build_offsets(self, consumer: ConsumerT, tps: set[TP], destination: Counter[TP], title: str) -> None:
        await super()._build_offsets(consumer, tps, destination, title)
        if title != "active":
            return
        for table in {table for tp, table in self.tp_to_table.items() if tp in tps}:
            if isinstance(table, ChangelogTable) and (self.app.in_transaction or _packed(table)):
                behind = [tp for tp in tps if self.tp_to_table[tp] is table and destination[tp] < self.active_highwaters[tp]]
                if behind:
                    await self._restore(table, behind, destination)

    async def _restore(self, table: ChangelogTable, tps: list[TP], offsets: Counter[TP]) -> None:
        """Read the partitions from the offsets up to the high water marks; offsets move as the table is filled."""
        began, count = time.monotonic(), 0
        places = {TopicPartition(tp.topic, tp.partition): tp for tp in tps}
        async with _consumer(self.app) as reader:
            reader.assign(list(places))
            for place, tp in places.items():
                reader.seek(place, offsets[tp] + 1)
            left = set(places)
            while left:
                for place, records in (await reader.getmany(*left, timeout_ms=round(1000 * POLL))).items():
                    self._put_in(table, places[place], records)
                    count += len(records)
                for place in list(left):
                    tp = places[place]
                    offsets[tp] = max(offsets[tp], await reader.position(place) - 1)
                    if offsets[tp] >= self.active_highwaters[tp]:
                        left.discard(place)
        log.info("Restored %d records of the table %s in %.1f s", count, table.name, time.monotonic() - began)

    def _put_in(self, table: ChangelogTable, tp: TP, records: Sequence[Any]) -> None:
        if _packed(table):
            table.restore(records)
        else:
            message = self.app.consumer._to_message  # type: ignore[attr-defined]
            table.apply_changelog_batch([Event(self.app, each.key, each.value, None, message(tp, each)) for each in records])


def restore_in_bulk(app: faust.App) -> None:
    """Have `app` restore its tables of ours in bulk; before it starts."""
    app.tables._recovery = BulkRecovery(app, app.tables, beacon=app.tables.beacon)  # type: ignore[attr-defined]


def _packed(table: ChangelogTable) -> TypeGuard[SlotTable]:
    return isinstance(table, SlotTable) and table.in_memory


def _consumer(app: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=server_list(app.conf.broker_consumer, KAFKA_PORT),
        **credentials_to_aiokafka_auth(app.conf.broker_credentials, app.conf.ssl_context),
        isolation_level="read_committed" if app.in_transaction else "read_uncommitted",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=PARTITION_BYTES,
        check_crcs=False,
    )
