"""A broker that demands TLS, a certificate and a password: workers run on it as on any other, and say nothing secret."""

import asyncio
import dataclasses
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_tpp.topologies.connection import BrokerUnreachable, RefusedByBroker
from stream_tpp.topologies.settings import Forecasts, Settings
from stream_tpp.topologies.topics import declare
from tests.brokers.kafka import PASSPHRASE, PASSWORD, SCRAM, KafkaCluster, KafkaUnavailable
from tests.e2e.worker import toml
from tests.faults.conftest import settings_for
from tests.faults.fleet import Fleet, Ways
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow

MECHANISMS = ("PLAIN", *SCRAM)
WRONG = "red-herring"
WORKER = [sys.executable, "-c", "from stream_tpp.cli.main import main; main()", "--log-level", "debug", "worker", "simulate"]


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    try:
        own = KafkaCluster(tmp_path_factory.mktemp("demanding"), secured=True)
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka of our own: {error}")
    with own:
        yield own


@pytest.fixture
def settings(demanding: KafkaCluster, name: str, tmp_path: Path) -> Settings:
    return settings_for(demanding.secured_connection(), name, tmp_path)


async def test_workers_by_every_mechanism_lose_nothing_and_say_no_secret(
    fleet: Fleet, traffic: Traffic, settings: Settings, demanding: KafkaCluster
) -> None:
    for mechanism in MECHANISMS:
        by = dataclasses.replace(settings, kafka=demanding.secured_connection(mechanism))
        fleet.launch(by, Ways(level=logging.DEBUG))
    await asyncio.to_thread(fleet.await_ready)
    traffic.flow()
    await asyncio.sleep(2)
    fleet.running()[0].kill()
    await asyncio.to_thread(fleet.await_ready)
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not fleet.said_dead
    for worker, mechanism in zip(fleet.workers, MECHANISMS, strict=True):
        log = worker.log.read_text()
        assert f"via {mechanism}" in log
        assert "DEBUG aiokafka.conn" in log, "not all was logged that could be"
        assert not [secret for secret in (PASSWORD, PASSPHRASE) if secret in log]
    for worker in fleet.running():
        told = "".join(worker.page(page) for page in ("/livez", "/readyz", "/metrics"))
        assert not [secret for secret in (PASSWORD, PASSPHRASE) if secret in told]
    print(f"{account.events_in} events, {account.duplicated} repeated records")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_at_once(demanding: KafkaCluster, mechanism: str) -> None:
    wrong = dataclasses.replace(demanding.secured_connection(mechanism), sasl_password=WRONG)
    with pytest.raises(RefusedByBroker, match=r"does not take the connection \(.*check security_protocol") as refused:
        await declare(wrong, [])
    assert WRONG not in str(refused.value)


async def test_an_authority_that_did_not_sign_is_refused_at_once(demanding: KafkaCluster) -> None:
    with pytest.raises(RefusedByBroker, match=r"self-signed certificate\.*.*: check security_protocol and the ssl_"):
        await declare(dataclasses.replace(demanding.secured_connection(), ssl_cafile=None), [])


async def test_without_its_certificate_a_client_is_told_what_may_be_missing(demanding: KafkaCluster) -> None:
    """Kafka closes the connection without a word."""
    without = dataclasses.replace(demanding.secured_connection(), ssl_certfile=None, ssl_keyfile=None)
    with pytest.raises(BrokerUnreachable, match=r"closed\): .*kafka\.ssl_certfile, where it wants a certificate"):
        await declare(without, [], within=1.0)


def test_a_worker_with_a_wrong_password_fails_with_one_sentence(settings: Settings, tmp_path: Path) -> None:
    wrong = dataclasses.replace(settings.kafka, sasl_mechanism="SCRAM-SHA-512", sasl_password=WRONG)
    config = tmp_path / "settings.toml"
    config.write_text(toml(dataclasses.replace(settings, kafka=wrong, forecasts=Forecasts("flights"), rules=())))
    # The first worker of a machine compiles its sampler before it connects.
    ended = subprocess.run([*WORKER, "--config", config], capture_output=True, text=True, timeout=240, check=False)
    said = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert said[-1].startswith(f"Error: Kafka at {wrong.servers[0]} does not take the connection (")
    assert WRONG not in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
