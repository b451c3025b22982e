"""Faust's Kafka transport with a fetch wait of one's choice.

Faust 0.15.3 asks for a fetch wait of 1500 ms, whatever the settings. On Apache Kafka a long poll ends when a record
arrives, so that costs nothing; on the embedded broker it does not, and the wait becomes the latency.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import faust
from aiokafka import AIOKafkaConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types import AppT
from faust.types.transports import ConsumerT
from yarl import URL


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


class Transport(driver.Transport):
    """Faust's aiokafka transport; `fetch_wait` is how long (seconds) the broker may hold a fetch that has no record."""

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


def set_fetch_wait(app: faust.App, fetch_wait: float) -> None:
    """Give `app` a transport whose consumer waits at most `fetch_wait` seconds for records, before its first agent."""
    app.transport = Transport(app.conf.broker_consumer, app, fetch_wait=fetch_wait)
