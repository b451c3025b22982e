"""A worker that is killed in the middle costs nothing: the next one loses nothing, and contradicts nothing it had written."""

from pathlib import Path

import pytest

from stream_tpp.topologies.audit import audit
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.topics import Topic, declare
from tests.e2e.account import account
from tests.e2e.flights import inputs, send
from tests.e2e.worker import WorkerProcess, sizes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

GOOD, ROUNDS = 5_000, 4


async def test_a_worker_killed_twice_loses_nothing_and_contradicts_nothing(settings: Settings, tmp_path: Path) -> None:
    topics = settings.topics
    await declare(settings.kafka, [Topic(topics.events, topics.partitions)])
    sent = inputs(GOOD, ROUNDS)
    places = await send(settings.kafka, topics.events, sent)
    for share in (0.25, 0.6):
        with WorkerProcess(settings, tmp_path) as worker:
            await worker.until({topics.forecasts: int(GOOD * share)}, within=900)
            worker.kill()
        assert (await sizes(settings, [topics.forecasts]))[topics.forecasts] < GOOD, "killed too late to show anything"
    with WorkerProcess(settings, tmp_path) as worker:
        await worker.ready()
        await worker.drained(within=900)
        assert worker.stop() == 0, worker.log()
    done = await account(settings, places)
    assert (done.lost, done.contradictory, done.unasked) == ([], [], [])
    audited = await audit(settings.kafka, topics, settings.rules)
    assert (audited.lost, audited.contradictory) == (0, 0), audited.faults
    assert audited.events_in == audited.processed + audited.dead_lettered == len(sent)
