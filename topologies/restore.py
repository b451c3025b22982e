"""Histories back from their changelog, many records at a time.

Faust's recovery makes several tasks for each record of a changelog: measured, some 2,000 records a second on a busy machine. The
histories in memory are read here by a consumer of their own, in batches, before Faust's recovery begins; it is left what
was written meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.tables.recovery import Recovery
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list
from faust.types import TP
from faust.types.transports import ConsumerT

from stream_tpp.operators.slots import SlotTable

log = logging.getLogger(__name__)

KAFKA_PORT = 9092
POLL = 0.2
PARTITION_BYTES = 4 << 20


class BulkRecovery(Recovery):
    """Faust's recovery, after the histories in memory have been restored in bulk."""

    async def _build_offsets(self, consumer: ConsumerT, tps: set[TP], destination: Counter[TP], title: str) -> None:
        await super()._build_offsets(consumer, tps, destination, title)
        if title != "active":
            return
        for table in {table for tp, table in self.tp_to_table.items() if tp in tps}:
            if isinstance(table, SlotTable) and table.in_memory:
                behind = [tp for tp in tps if self.tp_to_table[tp] is table and destination[tp] < self.active_highwaters[tp]]
                if behind:
                    await self._restore(table, behind, destination)

    async def _restore(self, table: SlotTable, tps: list[TP], offsets: Counter[TP]) -> None:
        """Read the partitions from the offsets up to the high water marks; offsets move as the table is filled."""
        began, count = time.monotonic(), 0
        places = {TopicPartition(tp.topic, tp.partition): tp for tp in tps}
        async with _consumer(self.app) as reader:
            reader.assign(list(places))
            for place, tp in places.items():
                reader.seek(place, offsets[tp] + 1)
            left = set(places)
            while left:
                for records in (await reader.getmany(*left, timeout_ms=round(1000 * POLL))).values():
                    table.restore(records)
                    count += len(records)
                for place in list(left):
                    tp = places[place]
                    offsets[tp] = max(offsets[tp], await reader.position(place) - 1)
                    if offsets[tp] >= self.active_highwaters[tp]:
                        left.discard(place)
        log.info("Restored %d slots of histories in %.1f s", count, time.monotonic() - began)


def restore_in_bulk(app: faust.App) -> None:
    """Have `app` restore its histories in bulk; before it starts."""
    app.tables._recovery = BulkRecovery(app, app.tables, beacon=app.tables.beacon)  # type: ignore[attr-defined]


def _consumer(app: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=server_list(app.conf.broker_consumer, KAFKA_PORT),
        **credentials_to_aiokafka_auth(app.conf.broker_credentials, app.conf.ssl_context),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=PARTITION_BYTES,
        check_crcs=False,
    )
