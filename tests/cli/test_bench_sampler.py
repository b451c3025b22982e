"""`stream-tpp bench sampler`: models are trained once, rows say what CONTRACT names, the baselines are two."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_tpp.cli.bench import command

KEYS = {
    "dataset",
    "encoder",
    "layers",
    "draft",
    "mode",
    "batch",
    "paths",
    "draft_length",
    "acceptance",
    "events_per_target_pass",
    "eager_autoregressive_events_per_s",
    "autoregressive_events_per_s",
    "speculative_events_per_s",
    "speedup_over_eager",
    "speedup",
    "backend",
    "device",
}


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "visits.jsonl"
    lines = (
        json.dumps({"entity": f"e{entity}", "time": 60.0 * step + entity, "type": "ab"[(step + entity) % 2]})
        for entity in range(200)
        for step in range(12)
    )
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_table_of_trained_models_and_a_second_run_that_only_measures(log: str, tmp_path: Path) -> None:
    models = tmp_path / "models"
    quick = [
        "--layers",
        "2",
        "--train-seconds",
        "1",
        "--events",
        "4",
        "--repeats",
        "1",
        "--draft-length",
        "2",
        "--encoder",
        "sahp",
    ]
    arguments = ["sampler", log, "--models", str(models), "--json", *quick]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["dataset"], row["batch"], row["paths"]) for row in rows[::3]] == [
        ("hawkes", 1, 1),
        ("multihawkes", 1, 1),
        ("visits.jsonl", 1, 1),
    ]
    assert [(row["batch"], row["paths"]) for row in rows[:3]] == [(1, 1), (1, 64), (16, 64)]
    for row in rows:
        assert row.keys() >= KEYS
        assert (row["backend"], row["draft_length"]) == ("native", 2)
        assert 1.0 <= row["events_per_target_pass"] <= 3.0
    made = {path: path.stat().st_mtime_ns for path in models.rglob("*.safetensors")}
    assert len(made) == 6
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert made == {path: path.stat().st_mtime_ns for path in models.rglob("*.safetensors")}


@pytest.mark.slow
def test_the_draft_length_is_swept_where_none_is_given(log: str) -> None:
    options = ["--model", "stream_tpp/pretrained/flights", "--events", "3", "--repeats", "1", "--json"]
    result = CliRunner().invoke(command, ["sampler", "flights", *options])
    assert result.exit_code == 0, result.output
    assert all(0 <= row["draft_length"] <= 16 for row in json.loads(result.stdout)["rows"])


def test_too_few_entities_are_an_error_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text(json.dumps({"entity": "a", "time": 1.0, "type": "arrived_on_time"}))
    result = CliRunner().invoke(command, ["sampler", str(path), "--model", "stream_tpp/pretrained/flights"])
    assert result.exit_code != 0
    assert "entities" in str(result.exception)
