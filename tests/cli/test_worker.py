from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_tpp.cli import worker
from stream_tpp.cli.main import cli
from stream_tpp.cli.worker import TOPOLOGIES


def started(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["worker", *arguments])


@pytest.mark.parametrize("place", TOPOLOGIES.values())
def test_every_topology_has_its_app_factory(place: str) -> None:
    module, _, factory = place.partition(":")
    assert callable(getattr(import_module(module), factory))


def test_settings_come_from_the_file_and_then_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(create: Callable[[], Any], on_ready: Callable[[], None]) -> None:
        seen.append(create())
        on_ready()

    seen: list[Any] = []
    monkeypatch.setattr("stream_tpp.topologies.run.run", run)
    monkeypatch.setattr(worker, "import_module", lambda name: SimpleNamespace(create_app=lambda settings: settings))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka.example:9092")
    (tmp_path / "settings.toml").write_text('[topics]\nevents = "departures"\n')
    result = started("early_warning", "--config", str(tmp_path / "settings.toml"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "early_warning reads departures at kafka.example:9092; Ctrl-C ends it.\n"
    assert seen[0].topics.events == "departures"


def test_settings_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    result = started("early_warning", "--config", str(tmp_path / "settings.toml"))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The settings file")


def test_an_unknown_topology_is_wrong_use() -> None:
    result = started("late_warning")
    assert result.exit_code == 2
    assert "'late_warning' is not one of 'early_warning', 'simulate'" in result.stderr
