"""The broker goes, for a while or behind a cut cable: workers hold on or die aloud, and nothing is lost."""

import asyncio
import dataclasses

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.conftest import FaultyKafka
from tests.faults.fleet import Fleet, until
from tests.faults.proxy import Proxy
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow


async def recovered(fleet: Fleet) -> int:
    """Wait until every worker is ready, replacing those that died aloud, as an orchestrator would; how many that were."""
    died = 0

    def ready() -> bool:
        nonlocal died
        for worker in fleet.workers:
            if not worker.running and worker.exit_code and not worker.replaced:
                worker.replaced = True
                died += 1
                fleet.launch()
        return all(worker.ready for worker in fleet.running())

    await asyncio.to_thread(until, ready, "every worker is ready again", fleet.logs, 90)
    return died


async def test_a_broker_that_restarts_is_waited_for(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka
) -> None:
    fleet.start(2)
    traffic.flow()
    await asyncio.sleep(2)
    await asyncio.to_thread(own_kafka.stop_node, 1)
    await asyncio.to_thread(own_kafka.start_node, 1)
    await asyncio.to_thread(own_kafka.await_nodes, 1)
    died = await recovered(fleet)
    await asyncio.sleep(2)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")


async def test_a_broker_that_crashes_and_is_gone_for_a_while_is_waited_for(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool
) -> None:
    (worker,) = fleet.start()
    traffic.flow()
    await asyncio.sleep(2)
    own_kafka.kill_node(1)
    await asyncio.sleep(30 if soak else 8)
    # A restart would not help it, and it gets nothing done.
    assert worker.running
    assert await asyncio.to_thread(lambda: (worker.live, worker.ready)) == (True, False)
    await asyncio.to_thread(own_kafka.start_node, 1)
    await asyncio.to_thread(own_kafka.await_nodes, 1)
    died = await recovered(fleet)
    await asyncio.sleep(2)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")


async def test_a_worker_cut_off_from_its_broker_gives_way_and_comes_back(
    fleet: Fleet, traffic: Traffic, settings: Settings, own_kafka: FaultyKafka, soak: bool
) -> None:
    async with Proxy(own_kafka.proxy_port, own_kafka.behind) as proxy:
        cut_off = fleet.launch(dataclasses.replace(settings, kafka=own_kafka.proxied_connection))
        fleet.launch()
        await asyncio.to_thread(fleet.await_ready)
        traffic.flow()
        await asyncio.sleep(2)
        proxy.cut()
        await asyncio.sleep(30 if soak else 10)
        assert cut_off.running
        assert await asyncio.to_thread(lambda: (cut_off.live, cut_off.ready)) == (True, False)
        proxy.mend()
        died = await recovered(fleet)
        await asyncio.sleep(2)
        await traffic.pause()
        account = await verdict(settings, traffic.sent, fleet.logs)
        assert not fleet.said_dead
        for worker in fleet.running():
            worker.kill()
    print(f"{account.events_in} events, {account.duplicated} repeated records, {died} workers replaced")
