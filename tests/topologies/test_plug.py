"""stream-tpp in a Faust app of one's own: what is refused before it starts, and what it does on a broker."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import faust
import orjson
import pytest
import torch
from aiokafka import AIOKafkaProducer

import stream_tpp
from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.checkpoint import save
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.topologies.broker import EmbeddedBroker
from stream_tpp.topologies.connection import Connection
from stream_tpp.topologies.plug import plug
from stream_tpp.topologies.topics import Topic, declare

EXAMPLE = Path(__file__).parents[2] / "examples" / "wards.py"
WITHIN = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model: about a minute between events, any type likely."""
    torch.manual_seed(0)
    config = ModelConfig(
        TargetConfig(2, layers=1, d_model=8, heads=1, feedforward=8, components=2), DraftConfig(d_model=8, components=2)
    )
    folder = tmp_path_factory.mktemp("models") / "icu"
    save(Model.fresh(config, ("tachycardia", "code_blue"), GapScale(4.0, 0.5, 1e-3), window=16), folder)
    return folder


def app() -> faust.App:
    return faust.App("wards", autodiscover=False, topic_partitions=3)


RULE = stream_tpp.Rule(alarm={"code_blue"}, horizon=3600, threshold=0.2)


def test_the_names_of_the_package_are_the_ones_that_are_documented(model: Path) -> None:
    assert stream_tpp.plug is plug
    assert stream_tpp.load(model).types == ("tachycardia", "code_blue")


def test_an_app_gets_topics_and_tables_with_the_partitions_it_was_told(model: Path) -> None:
    tpp = plug(app(), events="vitals", model=model, rules=[RULE], partitions=5)
    assert {topic.get_topic_name() for topic in (tpp.forecasts, tpp.warnings, tpp.alerts, tpp.dead_letters)} == {
        *("forecasts", "warnings", "alerts", "dead-letters"),
    }
    assert {table.partitions for table in tpp.events.app.tables.values()} == {5}
    assert plug(app(), events="vitals", model=model).histories.partitions == 3


def test_topics_may_be_given_names(model: Path) -> None:
    tpp = plug(app(), events="vitals", model=model, names={"alerts": "icu-alerts"})
    assert (tpp.alerts.get_topic_name(), tpp.warnings.get_topic_name()) == ("icu-alerts", "warnings")


def test_exactly_once_the_topics_that_our_agents_read_are_ours_to_commit(model: Path) -> None:
    exactly = faust.App("wards", autodiscover=False, topic_partitions=3, processing_guarantee="exactly_once")
    plug(exactly, events="vitals", model=model, rules=[RULE], names={"warnings": "icu-warnings"})
    assert exactly.transport.transactions.sources == {"vitals", "icu-warnings"}
    without_rules = faust.App("wards", autodiscover=False, processing_guarantee="exactly_once")
    plug(without_rules, events="vitals", model=model)
    assert without_rules.transport.transactions.sources == {"vitals"}
    at_least_once = app()
    plug(at_least_once, events="vitals", model=model, rules=[RULE])
    assert at_least_once.transport.transactions is None


def test_an_app_without_rules_has_no_agent_for_alerts(model: Path) -> None:
    tpp = plug(app(), events="vitals", model=model)
    assert tpp.alert_agent is None
    assert list(tpp.events.app.agents) == ["stream-tpp-forecast"]


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match="no model"):
        plug(app(), events="vitals", model=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([stream_tpp.Rule({"fire"}, 60, 0.2)], "names types that the model doesn't know: fire"),
        ([RULE, RULE], "share a name"),
    ],
)
def test_rules_that_do_not_fit_are_refused(model: Path, rules: list[stream_tpp.Rule], said: str) -> None:
    with pytest.raises(StreamTppError, match=said):
        plug(app(), events="vitals", model=model, rules=rules)


async def published(servers: str, records: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for record in records:
            await producer.send_and_wait("vitals-events", record, key=b"bed-12")


@pytest.mark.slow
async def test_the_example_pages_someone(model: Path, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        environment = {**os.environ, "MODEL": str(model), "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), "--datadir", str(tmp_path), "worker", "--without-web"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert worker.stdout is not None
        try:
            events = [orjson.dumps({"entity": "bed-12", "time": 60.0 * n, "type": "tachycardia"}) for n in range(3)]
            async with asyncio.timeout(WITHIN):
                await declare(Connection(broker.bootstrap_servers), [Topic("vitals-events", 2)])
                await published(broker.bootstrap_servers, [b"not an event", *events])
                while b"bed-12: code_blue-3600s raised (score " not in (line := await worker.stdout.readline()):
                    assert line, "the worker ended"
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(worker.wait(), WITHIN) == 0
        finally:
            if worker.returncode is None:
                worker.kill()
