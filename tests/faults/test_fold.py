"""Fold of the events, fold of the changelog and the live table are one, in both stores, before a restart and after it."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stream_tpp.operators.agents import ChangelogTable
from stream_tpp.operators.alerts import states_mark
from stream_tpp.operators.histories import slot_mark
from stream_tpp.topologies import early_warning
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Settings
from tests.faults.engine import Double
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic, records, verdict

pytestmark = pytest.mark.slow


@asynccontextmanager
async def tables(settings: Settings, fleet: Fleet) -> AsyncIterator[tuple[ChangelogTable, ChangelogTable]]:
    """Those of histories and of alerts of a worker in this process, once they are recovered."""
    app, plugged = early_warning.create(settings, Double(fleet.mood))
    assert plugged.alert_agent is not None
    await app.start()
    try:
        while not app.tables.recovery.completed.is_set() or app.in_recovery:
            await asyncio.sleep(0.05)
        yield plugged.histories, plugged.alert_agent.table
    finally:
        await app.stop()


async def fold(connection: Connection, table: Any, mark: Callable[[bytes], int]) -> dict[bytes, bytes]:
    """What the table's changelog leaves of each key."""
    held: dict[bytes, bytes] = {}
    async for record in records(connection, table.changelog_topic_name):
        if mark(record.value) >= mark(held.get(record.key, record.value)):
            held[record.key] = record.value
    return held


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
async def test_the_live_tables_are_the_folds_of_their_changelogs_and_of_the_events(
    fleet: Fleet, traffic: Traffic, settings: Settings, store: str
) -> None:
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    settings = dataclasses.replace(settings, histories=dataclasses.replace(settings.histories, store=store))
    for _ in range(2):
        async with tables(settings, fleet) as (histories, alerts):
            traffic.flow()
            await asyncio.sleep(3)
            await traffic.pause()
            # Which folds the events, and compares them with the changelog.
            account = await verdict(settings, traffic.sent, fleet.logs)
            assert account.sound
            assert account.alerts_raised > 10
            slots = dict(histories.items())
            assert slots == await fold(settings.kafka, histories, slot_mark)
            assert dict(alerts.items()) == await fold(settings.kafka, alerts, states_mark)
    print(f"{store}: {account.events_in} events, {len(slots)} slots, {account.alerts_raised} alerts raised")
