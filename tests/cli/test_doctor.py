"""`stream-tpp doctor` tells a person what is wrong, and ends with exit code 0 once it could look."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from stream_tpp.cli.doctor import command
from stream_tpp.cli.main import cli
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.checkpoint import save
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model

QUICK = ["--histories", "2"]


def folder_of(model: Model, path: Path) -> str:
    save(model, path)
    return str(path)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    target = TargetConfig(2, layers=1, d_model=8, heads=2, feedforward=8, components=2)
    return Model.fresh(ModelConfig(target, DraftConfig(d_model=8, components=2)), ("0", "1"), GapScale(-0.5, 1.2, 1e-9), 16)


@pytest.fixture
def log(tmp_path: Path) -> str:
    random, path = np.random.default_rng(0), tmp_path / "events.jsonl"
    with path.open("w") as lines:
        for entity in range(12):
            for time in np.cumsum(random.exponential(1.0, 10)):
                event = {"entity": f"e{entity}", "time": time, "type": "012"[int(random.integers(3))]}
                lines.write(json.dumps(event) + "\n")
    return str(path)


def test_the_document_has_the_promised_keys(model: Model, log: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [folder_of(model, tmp_path / "model"), log, "--json", *QUICK])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"findings", "model"}
    for finding in document["findings"]:
        assert set(finding) == {"check", "value", "verdict", "advice"}
        assert finding["verdict"] in {"ok", "warning", "fault"}
        assert bool(finding["advice"]) == (finding["verdict"] != "ok")


def test_a_person_reads_each_finding_and_what_to_do(model: Model, log: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [folder_of(model, tmp_path / "model"), log, *QUICK])
    assert result.exit_code == 0, result.output
    assert "warning  types" in result.stdout
    assert "'2'" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("checks found something.")


def test_faults_are_findings_not_failures(model: Model, log: str, tmp_path: Path) -> None:
    with torch.no_grad():
        model.draft.head.locs.bias[0] = torch.inf
    result = CliRunner().invoke(command, [folder_of(model, tmp_path / "model"), log, *QUICK])
    assert result.exit_code == 0, result.output
    assert "fault    weights" in result.stdout
    assert "draft's head.locs.bias" in result.stdout


def test_what_cannot_be_examined_is_a_failure_in_one_sentence(model: Model, log: str, tmp_path: Path) -> None:
    for words in ([str(tmp_path / "none"), log], [folder_of(model, tmp_path / "model"), str(tmp_path / "none.csv")]):
        result = CliRunner().invoke(cli, ["doctor", *words])
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert result.output.count("\n") == 1


def test_help_shows_an_example() -> None:
    assert "Example: stream-tpp doctor" in CliRunner().invoke(command, ["--help"]).output
