"""docker-compose.yml is a Compose file, agrees with itself, and opens nothing to the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stream_tpp.topologies.settings import Settings, load

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
# No more than a broker, its topics and a worker, unless the profile is asked for.
ONE_SHOTS = {"topics", "replay"}


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


def check(path: Path) -> subprocess.CompletedProcess[str]:
    """The verdict of the Compose specification's own JSON schema, as the package check-jsonschema ships it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_follows_the_compose_specification() -> None:
    verdict = check(FILE)
    assert verdict.returncode == 0, verdict.stdout


@pytest.mark.parametrize(
    ("written", "mistaken", "said"),
    [
        ("service_healthy", "service_fine", "'service_fine' is not one of"),
        ("restart: unless-stopped", "restart: 3", "3 is not of type 'string'"),
        ("healthcheck:", "healthchek:", "'healthchek' does not match"),
    ],
)
def test_a_mistake_would_be_seen(tmp_path: Path, written: str, mistaken: str, said: str) -> None:
    text = FILE.read_text()
    assert written in text
    bad = tmp_path / "docker-compose.yml"
    bad.write_text(text.replace(written, mistaken, 1))
    verdict = check(bad)
    assert verdict.returncode == 1
    assert said in verdict.stdout


def test_ports_are_bound_to_the_loopback_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert sorted(ports) == ["127.0.0.1:6066:6066", "127.0.0.1:9092:9092"]


def test_what_stays_up_says_whether_it_is_well(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert ("healthcheck" in service) == (name not in ONE_SHOTS), name


def test_each_service_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    waits = {name: service.get("depends_on", {}) for name, service in compose["services"].items()}
    assert waits == {
        "kafka": {},
        "topics": {"kafka": {"condition": "service_healthy"}},
        "worker": {"topics": {"condition": "service_completed_successfully"}},
        "replay": {"worker": {"condition": "service_healthy"}},
    }


def test_the_kafka_of_compose_is_the_one_that_the_tests_meet(compose: dict[str, Any]) -> None:
    tested = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<", (ROOT / "tests/brokers/pom.xml").read_text())
    assert tested is not None
    images = {compose["services"][name]["image"] for name in ("kafka", "topics")}
    assert images == {f"apache/kafka:{tested[1]}"}


def test_the_topics_made_are_those_that_the_worker_wants(compose: dict[str, Any]) -> None:
    settings = worker_settings(compose)
    script = compose["services"]["topics"]["command"][-1]
    made = re.search(r"for topic in ([a-z -]+);", script)
    assert made is not None
    topics = settings.topics
    assert set(made[1].split()) == {topics.events, topics.forecasts, topics.warnings, topics.alerts, topics.dead_letters}
    assert f"--partitions {topics.partitions} " in script
    replayed = compose["services"]["replay"]["command"]
    assert replayed[replayed.index("--topic") + 1] == topics.events


def test_worker_and_replay_reach_the_broker_where_it_listens(compose: dict[str, Any]) -> None:
    server = worker_settings(compose).kafka.bootstrap_servers
    kafka = compose["services"]["kafka"]["environment"]
    assert f"INSIDE://{server}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert compose["services"]["replay"]["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == server
    assert f"--bootstrap-server {server} " in compose["services"]["topics"]["command"][-1]


def test_the_worker_serves_where_compose_looks(compose: dict[str, Any]) -> None:
    web = worker_settings(compose).web
    assert (web.enabled, web.host) == (True, "0.0.0.0")
    assert f"127.0.0.1:{web.port}/readyz" in compose["services"]["worker"]["healthcheck"]["test"][-1]


def worker_settings(compose: dict[str, Any]) -> Settings:
    """What the worker of compose would read: its file, found at its mount, and its environment."""
    worker = compose["services"]["worker"]
    mounts = dict(volume.split(":")[:2][::-1] for volume in worker["volumes"])
    return load(ROOT / mounts[worker["command"][-1]], {name: str(value) for name, value in worker["environment"].items()})


def test_the_image_holds_what_it_installs() -> None:
    copied = set(re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    sources = {source for line in copied for source in line.split()}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == let_in
    assert all((ROOT / source).exists() for source in sources)
