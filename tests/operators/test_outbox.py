"""Sent as soon as it is known; acknowledged in order, after delivery, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from faust.types import TP

from stream_tpp.operators.outbox import EagerOutbox, Outbox, Parcel, Undeliverable
from stream_tpp.operators.post import Arrived, Fate, Letter


def output(name: str) -> Letter:
    return Letter("forecasts", name.encode(), b"{}")


def write(name: str) -> Letter:
    return Letter("changelog", name.encode(), b"slot", partition=0)


class Broker:
    """Takes what is sent and delivers it when told; remembers what happened in which order."""

    def __init__(self, by_itself: bool = True) -> None:
        self.by_itself = by_itself
        self.happened: list[str] = []
        self.under_way: dict[str, asyncio.Future[None]] = {}
        self.faults: dict[str, list[Exception]] = {}

    async def send(self, letters: Sequence[Letter]) -> list[Fate]:
        names = [(letter.key or b"").decode() for letter in letters]
        for name in names:
            self.happened.append(f"sent {name}")
            self.under_way[name] = asyncio.get_running_loop().create_future()
            if self.by_itself:
                self.under_way[name].set_result(None)
        await asyncio.gather(*(self.under_way[name] for name in names))
        return [self.faults[name].pop(0) if self.faults.get(name) else Arrived(TP("any", 0), 0) for name in names]

    def parcel(self, name: str, outputs: list[Letter] | None, partition: int = 0) -> Parcel:
        # The offset tells nothing here: parcels are put in order.
        return Parcel(TP("events", partition), 0, lambda: self.happened.append(f"acked {name}"), outputs=outputs)


@asynccontextmanager
async def publishing(outbox: Outbox) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(outbox.run())
    try:
        yield task
    finally:
        task.cancel()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_record_is_acknowledged_after_its_outputs_arrived() -> None:
    broker = Broker(by_itself=False)
    outbox = EagerOutbox(broker.send, limit=10)
    async with publishing(outbox):
        outbox.put(broker.parcel("1", [output("a"), output("b")]))
        await settled()
        broker.under_way["a"].set_result(None)
        await settled()
        assert broker.happened == ["sent a", "sent b"]
        broker.under_way["b"].set_result(None)
        await settled()
    assert broker.happened == ["sent a", "sent b", "acked 1"]


async def test_a_record_is_acknowledged_after_its_table_writes_arrived() -> None:
    broker = Broker(by_itself=False)
    outbox = EagerOutbox(broker.send, limit=10)
    async with publishing(outbox):
        parcel = broker.parcel("1", [output("a")])
        parcel.writes = [write("w")]
        outbox.put(parcel)
        await settled()
        broker.under_way["a"].set_result(None)
        await settled()
        assert broker.happened == ["sent w", "sent a"]
        broker.under_way["w"].set_result(None)
        await settled()
    assert broker.happened == ["sent w", "sent a", "acked 1"]


async def test_a_record_is_sent_at_once_and_acknowledged_after_those_before_it_in_its_partition() -> None:
    broker = Broker()
    outbox = EagerOutbox(broker.send, limit=10)
    async with publishing(outbox):
        slow = broker.parcel("slow", None)
        for parcel in (slow, broker.parcel("quick", [output("q")]), broker.parcel("other", [output("o")], partition=1)):
            outbox.put(parcel)
        await settled()
        assert broker.happened == ["sent q", "sent o", "acked other"]
        outbox.resolve(slow, [output("s")])
        await settled()
    assert broker.happened[3:] == ["sent s", "acked slow", "acked quick"]


async def test_records_that_another_stands_for_are_acknowledged_when_its_outputs_arrived() -> None:
    broker = Broker(by_itself=False)
    outbox = EagerOutbox(broker.send, limit=10)
    async with publishing(outbox):
        earlier, newest = broker.parcel("earlier", None), broker.parcel("newest", None)
        for parcel in (earlier, newest):
            outbox.put(parcel)
        outbox.resolve(newest, [output("n")], [earlier])
        await settled()
        assert broker.happened == ["sent n"]
        broker.under_way["n"].set_result(None)
        await settled()
    assert broker.happened == ["sent n", "acked earlier", "acked newest"]


async def test_who_reads_waits_while_the_outbox_is_full() -> None:
    broker = Broker()
    outbox = EagerOutbox(broker.send, limit=2)
    first = broker.parcel("1", None)
    outbox.put(first)
    outbox.put(broker.parcel("2", []))
    async with publishing(outbox):
        waiting = asyncio.create_task(outbox.room())
        await settled()
        assert not waiting.done()
        outbox.resolve(first, [])
        await asyncio.wait_for(waiting, 5)
    assert len(outbox) == 0


async def test_an_output_that_failed_is_sent_again_before_the_record_is_acknowledged() -> None:
    broker = Broker()
    broker.faults["a"] = [OSError("the broker went away")] * 2
    outbox = EagerOutbox(broker.send, limit=10, retries=3, pause=0)
    async with publishing(outbox):
        outbox.put(broker.parcel("1", [output("a"), output("b")]))
        await settled()
    assert broker.happened == ["sent a", "sent b", "sent a", "sent a", "acked 1"]


async def test_what_can_not_be_delivered_is_never_acknowledged() -> None:
    broker = Broker()
    broker.faults["a"] = [OSError("the broker went away")] * 3
    outbox = EagerOutbox(broker.send, limit=10, retries=2, pause=0)
    async with publishing(outbox) as task:
        outbox.put(broker.parcel("1", [output("a")]))
        with pytest.raises(Undeliverable, match="the broker went away"):
            await asyncio.wait_for(task, 5)
    assert "acked 1" not in broker.happened


async def test_a_table_write_that_was_lost_is_undeliverable() -> None:
    broker = Broker()
    broker.faults["w"] = [OSError("the changelog went away")] * 2
    outbox = EagerOutbox(broker.send, limit=10, retries=1, pause=0)
    async with publishing(outbox) as task:
        parcel = broker.parcel("1", [])
        parcel.writes = [write("w")]
        outbox.put(parcel)
        with pytest.raises(Undeliverable, match="changelog"):
            await asyncio.wait_for(task, 5)
    assert "acked 1" not in broker.happened


async def test_what_is_in_flight_at_a_rebalance_is_dropped_unacknowledged() -> None:
    broker = Broker(by_itself=False)
    outbox = EagerOutbox(broker.send, limit=2)
    async with publishing(outbox):
        unanswered = broker.parcel("2", None)
        outbox.put(broker.parcel("1", [output("a")]))
        outbox.put(unanswered)
        await settled()
        epoch = outbox.epoch
        assert outbox.drop() == 2
        assert outbox.epoch == epoch + 1
        broker.under_way["a"].set_result(None)
        outbox.resolve(unanswered, [output("b")])
        await asyncio.wait_for(outbox.room(), 5)
        outbox.put(broker.parcel("1 again", [output("c")]))
        await settled()
        broker.under_way["c"].set_result(None)
        await settled()
    assert broker.happened == ["sent a", "sent c", "acked 1 again"]
