"""`stream-tpp fit` leaves a model that can be loaded, and says what it is worth."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stream_tpp.cli.evaluate import fidelity
from stream_tpp.cli.fit import command
from stream_tpp.cli.main import cli
from stream_tpp.cli.sample import command as sample
from stream_tpp.model.checkpoint import load

QUICK = [
    "--layers",
    "1",
    "--heads",
    "2",
    "--d-model",
    "8",
    "--components",
    "2",
    "--draft-d-model",
    "8",
    "--epochs",
    "2",
    "--draft-epochs",
    "1",
    "--window",
    "8",
]


@pytest.fixture
def log(tmp_path: Path) -> str:
    random, path = np.random.default_rng(0), tmp_path / "events.jsonl"
    with path.open("w") as lines:
        for entity in range(30):
            for time in np.cumsum(random.exponential(60.0, 10)):
                event = {"device": f"d{entity}", "time": time, "type": "ab"[int(random.integers(2))]}
                lines.write(json.dumps(event) + "\n")
    return str(path)


def test_fit_writes_a_model_and_reports_its_worth(log: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    arguments = [log, "--entity", "device", "--out", str(out), "--cycle", "day", "--cycle", "43200", "--json", *QUICK]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {"model", "train_nll", "test_nll", "acceptance", "seconds"} <= document.keys()
    model = load(out)
    assert model.version == document["version"]
    assert model.config.target.cycles == (86_400.0, 43_200.0)
    assert model.facts["command"].startswith(f"stream-tpp fit {log} --entity device --out")
    assert model.facts["seed"] == 0


def test_a_binned_model_is_fitted_sampled_and_judged_from_the_command_line(log: str, tmp_path: Path) -> None:
    out, own = str(tmp_path / "model"), [log, "--entity-column", "device"]
    fitting = [*own, "--out", out, "--head", "binned", "--bins", "60", "--spacing", "width", "--json", *QUICK]
    fitting += ["--recompute", "--simulated", "0.5"]
    assert CliRunner().invoke(command, fitting).exit_code == 0
    config = load(out).config.target
    assert (config.head, config.bins, config.spacing) == ("binned", 60, "width")
    result = CliRunner().invoke(sample, [out, *own, "--horizon", "300", "--paths", "3", "--json"])
    assert result.exit_code == 0, result.output
    entities = json.loads(result.stdout)["entities"]
    assert any(path["times"] for entity in entities for path in entity["paths"])
    small = ["--sequences", "10", "--paths", "4", "--horizon", "300", "--draws", "50", "--json"]
    result = CliRunner().invoke(fidelity, [out, *own, *small])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["passed"]


def test_a_time_that_is_none_and_a_period_that_is_none_are_wrong_use(log: str, tmp_path: Path) -> None:
    for wrong in (["--until", "yesterday"], ["--cycle", "fortnight"], ["--cycle", "-1"], ["--encoder", "rnn"], ["--bins", "10"]):
        result = CliRunner().invoke(command, [log, "--entity", "device", "--out", str(tmp_path / "m"), *QUICK, *wrong])
        assert result.exit_code == 2, wrong


@pytest.mark.parametrize("entities", [40, 2])
def test_a_log_without_two_events_of_one_entity_is_refused(entities: int, tmp_path: Path) -> None:
    log = tmp_path / "events.csv"
    log.write_text("entity,time,type\n" + "".join(f"{number},{number},x\n" for number in range(entities)))
    result = CliRunner().invoke(cli, ["fit", str(log), "--out", str(tmp_path / "m"), *QUICK])
    assert result.exit_code == 1
    assert "so no gap" in result.output


def test_a_folder_that_cannot_be_made_is_said_before_training(log: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(cli, ["fit", log, "--entity", "device", "--out", str(tmp_path / "file" / "m"), *QUICK])
    assert result.exit_code == 1
    assert result.output.startswith("Error: The folder")
