"""Why exactly_once is refused: by Faust's transactions, too, readers of committed records see repeats after a kill."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer

from stream_tpp.topologies import audit
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet, Ways
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

TRANSACTIONS = Ways(exactly_once=True)


def reader_of_what_is_committed(connection: Connection, fetch_wait: float) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **connection.client_options(),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=round(1000 * fetch_wait),
    )


async def test_faust_s_transactions_do_not_keep_a_killed_worker_from_repeating_itself(
    fleet: Fleet, traffic: Traffic, settings: Settings, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a newer Faust fail this test, exactly_once may be offered."""
    if not soak:
        pytest.skip("takes a minute: STREAM_TPP_SOAK=1 runs it")
    monkeypatch.setattr(audit, "_consumer", reader_of_what_is_committed)
    fleet.start(ways=TRANSACTIONS)
    traffic.flow()
    for _ in range(2):
        await asyncio.sleep(3.5)
        fleet.running()[0].kill()
        await asyncio.to_thread(fleet.start, ways=TRANSACTIONS)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    print(f"2 kills, {account.events_in} events, {account.duplicated} repeated records")
    assert account.duplicated
