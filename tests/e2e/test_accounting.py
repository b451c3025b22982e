"""5,000 real flights with every kind of bad record among them, through a real worker: each is accounted for, by the topics."""

from collections import Counter
from pathlib import Path

import pytest

from stream_tpp.topologies.audit import audit
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.topics import Topic, declare
from tests.e2e.account import account, records
from tests.e2e.flights import KINDS, inputs, send
from tests.e2e.worker import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

GOOD, ROUNDS = 5_000, 8


async def test_every_record_that_goes_in_is_accounted_for(settings: Settings, tmp_path: Path) -> None:
    topics = settings.topics
    sent = inputs(GOOD, ROUNDS)
    bad = sum(one.reason is not None for one in sent)
    assert (len(sent), bad) == (GOOD + ROUNDS * KINDS, ROUNDS * (KINDS - 1))
    with WorkerProcess(settings, tmp_path) as worker:
        await worker.ready()
        places = await send(settings.kafka, topics.events, sent)
        await worker.drained(within=900)
        assert worker.stop() == 0, worker.log()
    done = await account(settings, places)
    assert done.sound, str(done)
    reasons = Counter(dict(record.headers)["reason"].decode() for record in await records(settings, topics.dead_letters))
    assert reasons == Counter(one.reason for one in sent if one.reason is not None)
    assert await records(settings, topics.alerts), "no score crossed a threshold: alerts were not put to the test"
    # What the demo shows its user is the same account.
    audited = await audit(settings.kafka, topics, settings.rules)
    assert audited.sound, audited.faults
    assert (audited.events_in, audited.forecasts, audited.dead_lettered) == (len(sent), GOOD, bad)


async def test_events_that_came_before_the_worker_are_accounted_for(settings: Settings, tmp_path: Path) -> None:
    topics = settings.topics
    await declare(settings.kafka, [Topic(topics.events, topics.partitions)])
    sent = inputs(200, 1)
    places = await send(settings.kafka, topics.events, sent)
    with WorkerProcess(settings, tmp_path) as worker:
        await worker.ready()
        await worker.drained(within=300)
        assert worker.stop() == 0, worker.log()
    done = await account(settings, places)
    assert done.sound, str(done)
