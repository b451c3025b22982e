"""Faust commits no offset, and makes no producer, of what our transactions are for; a broker without them is named as such."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.plug import plug
from stream_tpp.topologies.transactions import TransactionManager
from tests.faults.engine import Double

VITALS, WARNINGS, ORDERS = TP("vitals", 0), TP("warnings", 1), TP("orders", 0)


class Ours:
    sources = frozenset({"vitals", "warnings"})

    def __init__(self) -> None:
        self.renewed: list[set[TP]] = []

    async def renew(self, tps: set[TP]) -> None:
        self.renewed.append(tps)


class Fausts:
    """Faust's producer: what it was asked for."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.committed: list[Any] = []

    async def maybe_begin_transaction(self, name: str) -> None:
        self.begun.append(name)

    async def commit_transactions(self, offsets: Any, group: str, start_new_transaction: bool) -> None:
        self.committed.append(offsets)


@pytest.fixture
def manager(tmp_path: Path) -> TransactionManager:
    app = faust.App("wards", autodiscover=False, datadir=str(tmp_path), processing_guarantee="exactly_once")
    plug(app, events="vitals", model=Double(tmp_path / "mood"), partitions=2)
    app.assignor.group_for_topic = lambda topic: 7
    consumer = SimpleNamespace(_thread=SimpleNamespace(tp_last_committed_at={}))
    return TransactionManager(app.transport, ours=Ours(), consumer=consumer, producer=Fausts())


async def test_faust_commits_the_offsets_of_others_alone(manager: TransactionManager) -> None:
    assert await manager.commit({VITALS: 5, WARNINGS: 7})
    assert manager.producer.committed == []
    assert await manager.commit({VITALS: 6, ORDERS: 3})
    assert manager.producer.committed == [{"wards-7-0": {ORDERS: 3}}]
    assert manager.consumer._thread.tp_last_committed_at.keys() == {VITALS, WARNINGS, ORDERS}


async def test_faust_makes_no_producer_for_what_is_ours(manager: TransactionManager) -> None:
    (table,) = manager.app.tables.values()
    assigned = {VITALS, WARNINGS, TP(table.changelog_topic_name, 0)}
    await manager.on_rebalance(assigned, set(), assigned)
    assert manager.producer.begun == []
    assert manager.ours.renewed == [assigned]
    await manager.on_rebalance(assigned | {ORDERS}, set(), {ORDERS})
    assert manager.producer.begun == ["wards-7-0"]


@pytest.mark.slow
@pytest.mark.parametrize("in_worker", [True, False])
async def test_a_broker_without_transactions_is_named_where_they_are_needed(tmp_path: Path, in_worker: bool) -> None:
    with EmbeddedBroker() as broker:
        url, folder = f"kafka://{broker.bootstrap_servers}", str(tmp_path)
        app = faust.App("wards", broker=url, autodiscover=False, datadir=folder, processing_guarantee="exactly_once")
        plug(app, events="vitals", model=Double(tmp_path / "mood"), partitions=2)
        app.in_worker = in_worker
        try:
            if in_worker:
                with pytest.raises(StreamTppError, match="brokers have to support transactions"):
                    await app.producer.start()
            else:
                await app.producer.start()
        finally:
            await app.producer.stop()
