"""A worker that stands by for another's histories has them when it takes over."""

import asyncio
import dataclasses

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.fleet import Fleet, until
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

ENTITIES = 40


@pytest.mark.parametrize("standbys", [1, 0])
async def test_a_standby_holds_what_it_takes_over(fleet: Fleet, traffic: Traffic, settings: Settings, standbys: int) -> None:
    histories = dataclasses.replace(settings.histories, standbys=standbys)
    first, second = fleet.start(2, dataclasses.replace(settings, histories=histories))
    await traffic.burst([f"entity-{number}" for number in range(ENTITIES)] * 3)

    def held() -> list[float]:
        return [worker.metric("stream_tpp_entities") for worker in (first, second)]

    if standbys:
        await asyncio.to_thread(until, lambda: held() == [ENTITIES, ENTITIES], "both hold all histories", fleet.logs)
    else:
        await asyncio.to_thread(until, lambda: sum(held()) == ENTITIES, "each holds its own histories", fleet.logs)
        assert min(held()) > 0
    traffic.flow(lambda random: f"entity-{random.randrange(ENTITIES)}")
    await asyncio.sleep(2)
    first.kill()
    await asyncio.sleep(6)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert second.metric("stream_tpp_entities") == ENTITIES
    print(f"{account.events_in} events, {account.duplicated} repeated records")
