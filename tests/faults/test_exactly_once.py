"""Why exactly_once is refused: by Faust's transactions, too, readers of committed records see repeats after a kill."""

import asyncio
import subprocess
from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer

from stream_tpp.topologies import audit, ledger
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.settings import Settings
from tests.faults.conftest import FaultyKafka
from tests.faults.fleet import Fleet, Ways
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

TRANSACTIONS = Ways(exactly_once=True)


async def test_faust_s_transactions_do_not_keep_a_killed_worker_from_repeating_itself(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a newer Faust fail this test, exactly_once may be offered."""
    if not soak:
        pytest.skip("takes a minute: STREAM_TPP_SOAK=1 runs it")
    monkeypatch.setattr(audit, "_consumer", reader_of_what_is_committed)
    monkeypatch.setattr(ledger, "MOST_FAULTS", 1_000_000)
    fleet.start(ways=TRANSACTIONS)
    traffic.flow()
    for _ in range(2):
        await asyncio.sleep(3.5)
        fleet.running()[0].kill()
        await asyncio.to_thread(fleet.start, ways=TRANSACTIONS)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    repeated = Counter(fault.split()[1] for fault in account.faults)
    within = {topic: in_transactions(own_kafka, topic) for topic in (settings.topics.forecasts, settings.topics.warnings)}
    print(f"2 kills, {account.events_in} events, repeated: {dict(repeated)}; (within, outside) transactions: {within}")
    # The app reads warnings, and so its producer knows where they go; it does not read forecasts.
    assert within[settings.topics.forecasts][0] == within[settings.topics.warnings][1] == 0
    assert repeated["forecast"]


def reader_of_what_is_committed(connection: Connection, fetch_wait: float) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **connection.client_options(),
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=round(1000 * fetch_wait),
    )


def in_transactions(kafka: FaultyKafka, topic: str) -> tuple[int, int]:
    """How many batches of the topic's first partition lie in transactions, and how many do not."""
    segment = kafka.folder / "node-1" / f"{topic}-0" / f"{0:020}.log"
    dump = [*kafka.command, "kafka.tools.DumpLogSegments", "--files", str(segment)]
    told = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    return told.count("isTransactional: true"), told.count("isTransactional: false")
