"""Faust's Kafka transport, with a fetch wait of one's choice and an orderly end of what is in flight at a rebalance.

Faust 0.15.3 asks for a fetch wait of 1500 ms, whatever the settings. On Apache Kafka a long poll ends when a record
arrives, so that costs nothing; on the embedded broker it does not, and the wait becomes the latency.

At a rebalance Faust first forgets what was acknowledged and not committed, and then waits for all that is in flight, for
as long as that takes: a worker that takes longer than the rebalance timeout is thrown out of its group. Here those in
flight get a while, then what they acknowledged is committed, and the rest is dropped.

Around a rebalance Faust loses records, in two ways; here it does not. While it recovers tables its consumer reads, and
partitions of the sources are let go on before they are sought: what is read between lies beyond the committed offset, the
offsets left out are taken for a gap that compaction made, and committed over. And a record that an agent's stream passes
over, since the flow was suspended as it came, is acknowledged.

And a partition with many records is read a few at a time, in turn with the others: Faust goes through all that it fetched of
it, 10,000 events or so, and meanwhile no warning would become an alert.

Where an app processes exactly once, Faust takes a changelog for empty that it has not read yet; here Kafka is asked for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, cast

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT
from faust.types.transports import ConsumerT, ProducerT, TransactionManagerT
from faust.types.tuples import Message
from mode import Service
from mode.services import WaitResults
from yarl import URL

from stream_tpp.operators.transactions import Transactions
from stream_tpp.topologies.transactions import Producer, TransactionManager

# Records that are read before it is another partition's turn.
AT_ONCE = 250

# Seconds between looks at whether there is a partition to read.
EMPTY_POLL = 0.05

# How long (seconds) nodes may take to notice that another one is gone: Kafka's broker.session.timeout.ms is 9 s.
NOTICED_WITHIN = 20.0

# How long (seconds) the commit of what is acknowledged may take when a worker ends.
LAST_COMMIT_WITHIN = 5.0

# Ends what is in flight, soon.
Settle = Callable[[], Awaitable[None]]


class ConsumerThread(driver.AIOKafkaConsumerThread):
    # When the group's coordinator last answered (monotonic seconds).
    answered_at: float | None = None

    async def on_start(self) -> None:
        await super().on_start()
        coordinator = self._ensure_consumer()._coordinator
        if hasattr(coordinator, "_do_heartbeat"):
            coordinator._do_heartbeat = self._noted(coordinator._do_heartbeat)

    def _noted(self, heartbeat: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
        async def beat() -> bool:
            answered = await heartbeat()
            if answered:
                self.answered_at = time.monotonic()
            return answered

        return beat

    async def known_position(self, tp: TP) -> int | None:
        """Where the consumer stands in a partition, if it knows. Raises RuntimeError where this thread has ended.

        Its own `position` waits for the broker to say where; and what Faust has this thread do waits in a line, of which two at
        once, commits among them, may wait for the broker, too. So this is asked past the line.
        """
        known = self._known_position(tp)
        try:
            asked = asyncio.run_coroutine_threadsafe(known, self.thread_loop)
        except RuntimeError:
            known.close()
            raise
        return await asyncio.wrap_future(asked)

    async def _known_position(self, tp: TP) -> int | None:
        subscription = self._ensure_consumer()._subscription.subscription
        assignment = None if subscription is None else subscription.assignment
        if assignment is None or tp not in assignment.tps:
            return None
        state = assignment.state_value(tp)
        return int(state.position) if state.has_valid_position else None

    async def _highwaters(self, partitions: list[TP]) -> Mapping[TP, int]:
        return cast(Mapping[TP, int], await self._ensure_consumer().end_offsets(partitions))

    async def _fetch_records(
        self, consumer: AIOKafkaConsumer, active_partitions: set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> RecordMap:
        fetched = await super()._fetch_records(consumer, active_partitions, timeout, max_records or AT_ONCE)
        waiting = consumer._fetcher._records
        for tp in fetched:
            if tp in waiting:
                # To the end of the line.
                waiting[tp] = waiting.pop(tp)
        return fetched

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        if isinstance(transport, Transport):
            # Read once, when the consumer starts and makes its fetcher; it is not started here yet.
            consumer._fetch_max_wait_ms = round(transport.fetch_wait * 1000)
        return consumer


class Consumer(driver.Consumer):
    _thread: ConsumerThread

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def on_init(self) -> None:
        super().on_init()
        # Partitions that were assigned, and whose position is not the committed offset for sure.
        self._unsought: set[TP] = set()
        self._assignments = 0

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self._assignments += 1
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

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self._assignments += 1
        self._thread.answered_at = time.monotonic()
        self._unsought = {tp for tp in assigned if not self._is_changelog_tp(tp)}
        await super().on_partitions_assigned(assigned, generation_id)

    async def on_stop(self) -> None:
        # Where the app crashed, the consumer's thread may end by itself meanwhile, and never answer.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(super().on_stop(), LAST_COMMIT_WITHIN)

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        # Faust waits so for each record to be handed on, with a task for each thing that could end it. Hardly ever is there
        # anything to wait for.
        if not all(asyncio.iscoroutine(coro) for coro in coros):
            return await super().wait_first(*coros, timeout=timeout)
        first, *others = coros
        handing_on = asyncio.ensure_future(first)
        try:
            await asyncio.sleep(0)
            if not handing_on.done():
                return await super().wait_first(handing_on, *others, timeout=timeout)
        except asyncio.CancelledError:
            handing_on.cancel()
            raise
        finally:
            for other in others:
                other.close()
        return WaitResults([first], [handing_on.result()], self.should_stop)

    async def perform_seek(self) -> None:
        assignments = self._assignments
        await super().perform_seek()
        if assignments == self._assignments:
            self._unsought.clear()

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> RecordMap:
        assignments = self._assignments
        if active_partitions is not None:
            active_partitions = active_partitions - self._unsought
            if not active_partitions:
                await asyncio.sleep(EMPTY_POLL)
                return {}
        records = await super()._getmany(active_partitions, timeout)
        if assignments != self._assignments:
            # Asked for before a rebalance: the sources are read again, from where they are sought.
            return {tp: batch for tp, batch in records.items() if self._is_changelog_tp(tp)}
        return records

    def ack(self, message: Message) -> bool:
        flows = self.app.flow_control.is_active() and message.generation_id == self.app.consumer_generation_id
        # No agent had it: tracking begins when one gets it.
        if not message.tracked and not flows:
            return False
        return bool(super().ack(message))


class Transport(driver.Transport):
    """Faust's aiokafka transport; `fetch_wait` is how long (seconds) the broker may hold a fetch that has no record.

    What is in `settle_first` is awaited when a rebalance begins, before what was acknowledged is committed. Where there are
    `transactions`, they commit the offsets of their sources, and Faust does not.
    """

    Consumer: ClassVar[type[ConsumerT]] = Consumer
    Producer: ClassVar[type[ProducerT]] = Producer

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
        self.transactions: Transactions | None = None

    def create_transaction_manager(self, *args: Any, **kwargs: Any) -> TransactionManagerT:
        if self.transactions is None:
            return super().create_transaction_manager(*args, **kwargs)
        return TransactionManager(self, *args, ours=self.transactions, **kwargs)

    async def _really_create_topic(self, owner: Service, client: AIOKafkaClient, *args: Any, **kwargs: Any) -> None:
        # Faust asks one node who the controller is, a node that has just gone, too, until the others have noticed.
        deadline = time.monotonic() + NOTICED_WITHIN
        while True:
            try:
                await super()._really_create_topic(owner, client, *args, **kwargs)
                return
            except KafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(1.0)
            await client.force_metadata_update()


def set_fetch_wait(app: faust.App, fetch_wait: float) -> None:
    """Give `app` a transport whose consumer waits at most `fetch_wait` seconds for records, before its first agent."""
    _ours(app).fetch_wait = fetch_wait


def silence(app: faust.App) -> float:
    """Seconds since the coordinator of the app's group answered; 0 where it was not asked yet, or is not heard by us."""
    answered_at = getattr(getattr(app.consumer, "_thread", None), "answered_at", None)
    return 0.0 if answered_at is None else time.monotonic() - answered_at


async def known_position(app: faust.App, tp: TP) -> int | None:
    """The offset that the app's consumer reads next in a partition; None where it doesn't know, as while the broker is away."""
    return await cast(Consumer, app.consumer)._thread.known_position(tp)


def settle_at_rebalance(app: faust.App, settle: Settle) -> None:
    """Have `app` await `settle` when a rebalance begins."""
    _ours(app).settle_first.append(settle)


def commit_by(app: faust.App, transactions: Transactions) -> None:
    """Have `app` leave the offsets of their sources to the transactions; before it starts."""
    _ours(app).transactions = transactions


FAUST_FETCH_WAIT = 1.5


def _ours(app: faust.App) -> Transport:
    if not isinstance(app.transport, Transport):
        app.transport = Transport(app.conf.broker_consumer, app, fetch_wait=FAUST_FETCH_WAIT)
    assert isinstance(app.transport, Transport)
    return app.transport
