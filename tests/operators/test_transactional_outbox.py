"""In order of offset, in one transaction with how far the partition is read, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from faust.types import TP

from stream_tpp.errors import StreamTppError
from stream_tpp.operators.outbox import Parcel, TransactionalOutbox, Undeliverable
from stream_tpp.operators.post import Letter
from stream_tpp.operators.transactions import ShutOut

FIRST, SECOND = TP("events", 0), TP("events", 1)


def output(name: str) -> Letter:
    return Letter("forecasts", name.encode(), b"{}")


class Broker:
    """Takes transactions, which end when they are told to; `faults` are what the next ones of a partition fail of."""

    def __init__(self, by_itself: bool = True) -> None:
        self.by_itself = by_itself
        self.committed: list[tuple[TP, int, str]] = []
        self.acked: list[int] = []
        self.under_way: dict[TP, asyncio.Future[None]] = {}
        self.faults: dict[TP, list[Exception]] = {FIRST: [], SECOND: []}

    async def commit(self, source: TP, offset: int, letters: Sequence[Letter]) -> None:
        assert source not in self.under_way, "one transaction of a partition at a time"
        self.under_way[source] = asyncio.get_running_loop().create_future()
        try:
            if not self.by_itself:
                await self.under_way[source]
            if self.faults[source]:
                raise self.faults[source].pop(0)
        finally:
            del self.under_way[source]
        self.committed.append((source, offset, " ".join((letter.key or b"").decode() for letter in letters)))

    def parcel(self, offset: int, outputs: Sequence[str] | None, tp: TP = FIRST) -> Parcel:
        known = None if outputs is None else [output(name) for name in outputs]
        return Parcel(tp, offset, lambda: self.acked.append(offset), [output(f"w{offset}")], known)

    def end(self, source: TP) -> None:
        self.under_way[source].set_result(None)


@asynccontextmanager
async def publishing(outbox: TransactionalOutbox) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(outbox.run())
    try:
        yield task
    finally:
        task.cancel()


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_what_is_known_at_the_head_is_one_transaction_and_nothing_overtakes_what_is_not() -> None:
    broker = Broker()
    outbox = TransactionalOutbox(broker.commit, limit=10)
    slow = broker.parcel(7, None)
    async with publishing(outbox):
        for parcel in (broker.parcel(3, ["a"]), broker.parcel(5, ["b", "c"]), slow, broker.parcel(8, ["d"])):
            outbox.put(parcel)
        await settled()
        assert broker.committed == [(FIRST, 6, "w3 a w5 b c")]
        assert broker.acked == [3, 5]
        outbox.resolve(slow, [])
        await settled()
    assert broker.committed[1:] == [(FIRST, 9, "w7 w8 d")]
    assert broker.acked == [3, 5, 7, 8]
    assert outbox.waits == 0.0


async def test_records_that_another_stands_for_are_committed_with_it() -> None:
    broker = Broker()
    outbox = TransactionalOutbox(broker.commit, limit=10)
    earlier, newest = broker.parcel(0, None), broker.parcel(1, None)
    async with publishing(outbox):
        outbox.put(earlier)
        outbox.put(newest)
        outbox.resolve(newest, [output("n")], [earlier])
        await settled()
    assert broker.committed == [(FIRST, 2, "w0 w1 n")]


async def test_a_partition_s_transactions_come_one_after_another_and_wait_for_no_other_partition_s() -> None:
    broker = Broker(by_itself=False)
    outbox = TransactionalOutbox(broker.commit, limit=10)
    async with publishing(outbox):
        for parcel in (broker.parcel(0, ["a"]), broker.parcel(10, ["x"], SECOND)):
            outbox.put(parcel)
        await settled()
        outbox.put(broker.parcel(1, ["b"]))
        outbox.put(broker.parcel(11, ["y"], SECOND))
        await settled()
        assert outbox.waits > 0.0
        broker.end(SECOND)
        await settled()
        broker.end(SECOND)
        await settled()
        assert broker.committed == [(SECOND, 11, "w10 x"), (SECOND, 12, "w11 y")]
        assert broker.acked == [10, 11]
        broker.end(FIRST)
        await settled()
        broker.end(FIRST)
        await settled()
    assert broker.acked == [10, 11, 0, 1]


async def test_a_transaction_that_failed_is_sent_again_whole() -> None:
    broker = Broker()
    broker.faults[FIRST] = [OSError("the broker went away")] * 2
    outbox = TransactionalOutbox(broker.commit, limit=10, retries=2, pause=0)
    async with publishing(outbox):
        outbox.put(broker.parcel(0, ["a", "b"]))
        await settled()
    assert broker.committed == [(FIRST, 1, "w0 a b")]
    assert broker.acked == [0]


async def test_what_can_not_be_committed_is_never_acknowledged() -> None:
    broker = Broker()
    broker.faults[FIRST] = [OSError("the broker went away")] * 3
    outbox = TransactionalOutbox(broker.commit, limit=10, retries=2, pause=0)
    async with publishing(outbox) as task:
        outbox.put(broker.parcel(0, ["a"]))
        with pytest.raises(Undeliverable, match="the broker went away"):
            await asyncio.wait_for(task, 5)
    assert broker.acked == []


@pytest.mark.parametrize("error", [ShutOut("Another worker took over."), StreamTppError("Another worker took over.")])
async def test_who_is_shut_out_and_hears_of_no_rebalance_ends_with_the_sentence_and_tries_no_more(error: Exception) -> None:
    broker = Broker()
    broker.faults[FIRST] = [error]
    outbox = TransactionalOutbox(broker.commit, limit=10, pause=0, notice=0.1)
    async with publishing(outbox) as task:
        outbox.put(broker.parcel(0, ["a"]))
        with pytest.raises(StreamTppError, match="Another worker took over"):
            await asyncio.wait_for(task, 5)
    assert broker.committed == []


async def test_who_is_shut_out_goes_on_after_the_rebalance_that_did_it() -> None:
    broker = Broker()
    broker.faults[FIRST] = [ShutOut("Another worker took over.")]
    outbox = TransactionalOutbox(broker.commit, limit=10, pause=0, notice=60)
    async with publishing(outbox) as task:
        outbox.put(broker.parcel(0, ["a"]))
        outbox.put(broker.parcel(4, ["b"], SECOND))
        await settled()
        assert broker.committed == [(SECOND, 5, "w4 b")]
        assert outbox.drop() == 1
        outbox.put(broker.parcel(0, ["a"]))
        await settled()
        assert broker.committed[1:] == [(FIRST, 1, "w0 a")]
        assert not task.done()
    assert broker.acked == [4, 0]


@pytest.mark.parametrize("fault", [ShutOut("Shut out."), StreamTppError("Said."), OSError("gone"), None])
async def test_what_becomes_of_a_transaction_whose_records_were_dropped_is_nobody_s_concern(fault: Exception | None) -> None:
    broker = Broker(by_itself=False)
    outbox = TransactionalOutbox(broker.commit, limit=10, pause=0)
    async with publishing(outbox) as task:
        outbox.put(broker.parcel(0, ["a"]))
        await settled()
        assert outbox.drop() == 1
        outbox.put(broker.parcel(0, ["a"]))
        await settled()
        # That of before the rebalance: the one after it has to wait.
        broker.faults[FIRST] = [] if fault is None else [fault]
        broker.end(FIRST)
        await settled()
        assert broker.acked == []
        broker.end(FIRST)
        await settled()
        assert not task.done()
    assert broker.acked == [0]


async def test_what_was_put_is_not_expected_again_before_a_rebalance() -> None:
    outbox = TransactionalOutbox(Broker().commit, limit=10)
    assert outbox.expects(FIRST, 0)
    outbox.put(Broker().parcel(5, None))
    assert [offset for offset in (4, 5, 6) if outbox.expects(FIRST, offset)] == [6]
    assert outbox.expects(SECOND, 0)
    outbox.drop()
    assert outbox.expects(FIRST, 4)
