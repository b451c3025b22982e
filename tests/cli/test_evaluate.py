"""`stream-tpp evaluate fidelity` says whether samples are exact, and how small a deviation it would have seen."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from stream_tpp.cli.evaluate import command
from stream_tpp.cli.main import cli
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.kernels.residual import Draws
from stream_tpp.kernels.verification import MODES, Verdict, joint
from stream_tpp.model.checkpoint import save
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.sampling.native import sampler as native

QUICK = ["--sequences", "20", "--paths", "4", "--draws", "200", "--horizon", "5"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    torch.manual_seed(0)
    target = TargetConfig(2, layers=1, d_model=8, heads=2, feedforward=8, components=2)
    fresh = Model.fresh(ModelConfig(target, DraftConfig(d_model=8, components=2)), ("0", "1"), GapScale(0.0, 1.0, 1e-9), 16)
    save(fresh, tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def log(tmp_path: Path) -> str:
    random, path = np.random.default_rng(0), tmp_path / "events.jsonl"
    with path.open("w") as lines:
        for entity in range(12):
            for time in np.cumsum(random.exponential(1.0, 10)):
                event = {"entity": f"e{entity}", "time": time, "type": "012"[int(random.integers(3))]}
                lines.write(json.dumps(event) + "\n")
    return str(path)


def test_the_document_has_the_promised_keys(model: str, log: str) -> None:
    result = CliRunner().invoke(command, ["fidelity", model, log, "--json", *QUICK])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert set(document["tests"]) == set(document["power"]) >= {"gap_ks", "joint_chi_square", "count_ks", "own_law_gap"}
    assert set(document["js_divergence"]) == {"gap", "type", "count"}
    assert document["sequences"] == 20
    assert {"gap", "type", "gap_by_chance"} <= set(document["next_event"])
    assert "types that the model doesn't know" in result.stderr


def test_all_modes_and_the_full_batch_and_the_known_law_can_be_asked_for(model: str, log: str) -> None:
    more = ["--mode", "joint", "--mode", "block", "--full", "--process", "multivariate_hawkes"]
    result = CliRunner().invoke(command, ["fidelity", model, log, "--json", *QUICK, *more])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document["modes"]) == {"joint", "block"}
    assert [(stage["stage"], stage["sequences"]) for stage in document["stages"]] == [("first", 20), ("full", 12)]
    assert set(document["known_law"]) == {"autoregressive", "joint", "block"}
    assert document["known_law"]["joint"]["d_ks"] > document["known_law"]["joint"]["band"]


def test_a_person_reads_the_verdict(model: str, log: str) -> None:
    result = CliRunner().invoke(command, ["fidelity", model, log, *QUICK])
    assert result.exit_code == 0, result.output
    assert "would have seen" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("One law: ")


def test_an_inexact_sampler_ends_with_exit_code_1(model: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(p: Law, q: Law, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
        verdict = joint(p, q, y, k, limits, draws)
        return verdict._replace(y=verdict.y + 0.5)

    monkeypatch.setattr(native, "is_supported", lambda *any: False)
    monkeypatch.setitem(MODES, "joint", wrong)
    result = CliRunner().invoke(command, ["fidelity", model, log, "--json", *QUICK, "--horizon", "20", "--paths", "16"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["passed"] is False


def test_a_missing_model_is_said_in_a_sentence(log: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["evaluate", "fidelity", str(tmp_path / "none"), log])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "Error:" in result.output


def test_help_shows_an_example() -> None:
    assert "Example: stream-tpp evaluate fidelity" in CliRunner().invoke(command, ["fidelity", "--help"]).output
