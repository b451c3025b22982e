"""Faust's hold on transactions, for topics whose offsets are committed in transactions of ours.

Faust 0.15.3 writes to a topic that the app does not read outside its transactions, and commits when its timer says so, between
an output and its offset. So the sources of our agents have none of its transactions, and it commits no offset of theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.errors import KafkaError
from faust.transport import consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.agents import ChangelogTable
from stream_tpp.operators.transactions import Transactions


class Producer(driver.Producer):
    """Faust's own; it says so where the brokers have no transactions and the app needs them."""

    async def on_start(self) -> None:
        try:
            await super().on_start()
        except KafkaError as error:
            if not self.app.in_transaction or error.retriable:
                raise
            raise StreamTppError(
                f"Kafka makes no producer that processes exactly once ({error!r}): the brokers have to support transactions, as "
                "Apache Kafka does and the embedded broker does not, and to let the worker use them. Otherwise set the "
                "processing guarantee to at_least_once ([worker] processing_guarantee)."
            ) from error


class TransactionManager(consumer.TransactionManager):
    """Faust's own for what is not ours."""

    def __init__(self, *args: Any, ours: Transactions, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ours = ours

    async def on_rebalance(self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP]) -> None:
        await super().on_rebalance(self._others(assigned), self._others(revoked), self._others(newly_assigned))
        await self.ours.renew(assigned)

    async def on_stop(self) -> None:
        await self.ours.end()
        await super().on_stop()

    async def commit(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        # Ours are acknowledged once they are committed; Faust notes here that they are, and would complain if it did not.
        now = time.monotonic()
        self.consumer._thread.tp_last_committed_at.update(dict.fromkeys(offsets, now))  # type: ignore[attr-defined]
        others = {tp: offset for tp, offset in offsets.items() if tp.topic not in self.ours.sources}
        return not others or await super().commit(others, start_new_transaction)

    def _others(self, tps: Iterable[TP]) -> set[TP]:
        changelogs = {table.changelog_topic_name for table in self.app.tables.values() if isinstance(table, ChangelogTable)}
        return {tp for tp in tps if tp.topic not in self.ours.sources | changelogs}
