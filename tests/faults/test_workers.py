"""Workers come and go, as they like or as they must: no event is lost and no two outputs contradict one another."""

import asyncio

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow


async def test_a_killed_worker_loses_nothing(fleet: Fleet, traffic: Traffic, settings: Settings) -> None:
    fleet.start(3)
    traffic.flow()
    for _ in range(2):
        await asyncio.sleep(3)
        fleet.running()[0].kill()
        fleet.launch()
        await asyncio.sleep(3)
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    print(account.events_in, account.duplicated)
