"""Faust's Kafka transport, with a fetch wait of one's choice and an orderly end of what is in flight at a rebalance.

Faust 0.15.3 asks for a fetch wait of 1500 ms, whatever the settings. On Apache Kafka a long poll ends when a record
arrives, so that costs nothing; on the embedded broker it does not, and the wait becomes the latency.

At a rebalance Faust first forgets what was acknowledged and not committed, and then waits for all that is in flight, for
as long as that takes: a worker that takes longer than the rebalance timeout is thrown out of its group. Here those in
flight get a while, then what they acknowledged is committed, and the rest is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

import faust
from aiokafka import AIOKafkaConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT
from faust.types.transports import ConsumerT
from yarl import URL


# Ends what is in flight, soon.
Settle = Callable[[], Awaitable[None]]


class ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        if isinstance(transport, Transport):
            # Read once, when the consumer starts and makes its fetcher; it is not started here yet.
            consumer._fetch_max_wait_ms = round(transport.fetch_wait * 1000)
        return consumer


class Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        transport = self.transport
        if isinstance(transport, Transport) and revoked and not self.app.should_stop:
            # Nothing more reaches the agents; heartbeats go on meanwhile, in the consumer's thread.
            self.stop_flow()
            self.app.flow_control.suspend()
            self.app.flow_control.clear()
            await asyncio.gather(*(settle() for settle in transport.settle_first))
            # Twice: the first may only have waited for a commit that was under way and knew less.
            await self.commit()
            await self.commit()
        await super().on_partitions_revoked(revoked)


class Transport(driver.Transport):
    """Faust's aiokafka transport; `fetch_wait` is how long (seconds) the broker may hold a fetch that has no record.

    What is in `settle_first` is awaited when a rebalance begins, before what was acknowledged is committed.
    """

    Consumer: ClassVar[type[ConsumerT]] = Consumer

    def __init__(
        self,
        url: list[URL],
        app: AppT,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        fetch_wait: float,
    ) -> None:
        super().__init__(url, app, loop)
        self.fetch_wait = fetch_wait
        self.settle_first: list[Settle] = []


def set_fetch_wait(app: faust.App, fetch_wait: float) -> None:
    """Give `app` a transport whose consumer waits at most `fetch_wait` seconds for records, before its first agent."""
    _ours(app).fetch_wait = fetch_wait


def settle_at_rebalance(app: faust.App, settle: Settle) -> None:
    """Have `app` await `settle` when a rebalance begins."""
    _ours(app).settle_first.append(settle)


FAUST_FETCH_WAIT = 1.5


def _ours(app: faust.App) -> Transport:
    if not isinstance(app.transport, Transport):
        app.transport = Transport(app.conf.broker_consumer, app, fetch_wait=FAUST_FETCH_WAIT)
    assert isinstance(app.transport, Transport)
    return app.transport
