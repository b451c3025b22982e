"""A model comes back from its folder as it went, or not at all, with a sentence that says why."""

import json
from pathlib import Path
from typing import get_args

import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.model.checkpoint import load, save
from stream_tpp.model.config import DraftConfig, DraftName, ModelConfig, TargetConfig
from stream_tpp.model.law import GapScale
from stream_tpp.model.model import Model


def model(seed: int = 0, kind: DraftName = "anchored") -> Model:
    torch.manual_seed(seed)
    target = TargetConfig(3, layers=2, d_model=16, heads=2, feedforward=16, components=2, cycles=(86_400.0, 604_800.0))
    config = ModelConfig(target, DraftConfig(kind, d_model=8, components=2))
    fresh = Model.fresh(config, ("departed", "late", "cancelled"), GapScale(1.5, 2.0, 1e-9), window=64)
    fresh.facts = {"seed": seed}
    return fresh


@pytest.mark.parametrize("kind", get_args(DraftName))
def test_a_saved_model_comes_back_the_same(tmp_path: Path, kind: DraftName) -> None:
    saved = model(kind=kind)
    save(saved, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert (loaded.config, loaded.types, loaded.scale, loaded.window) == (saved.config, saved.types, saved.scale, saved.window)
    assert (loaded.facts, loaded.version) == (saved.facts, saved.version)
    for ours, theirs in ((saved.target, loaded.target), (saved.draft, loaded.draft)):
        for name, tensor in ours.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])
    assert not loaded.target.training
    assert not loaded.draft.training


def test_the_version_names_the_weights(tmp_path: Path) -> None:
    first, again, other = model(), model(), model(1)
    for number, one in enumerate((first, again, other)):
        save(one, tmp_path / str(number))
    assert first.version == again.version != other.version


def test_a_missing_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match="no model"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["target", "draft"])
def test_truncated_or_missing_weights_are_refused(tmp_path: Path, name: str) -> None:
    save(model(), tmp_path)
    path = tmp_path / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StreamTppError, match="truncated"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(StreamTppError, match="missing"):
        load(tmp_path)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    save(model(), tmp_path)
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(StreamTppError, match="99"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '"model"'])
def test_a_broken_description_is_refused(tmp_path: Path, text: str) -> None:
    save(model(), tmp_path)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(StreamTppError):
        load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    save(model(), tmp_path)
    path = tmp_path / "model.json"
    document = json.loads(path.read_text())
    document["config"]["target"]["layers"] = 3
    path.write_text(json.dumps(document))
    with pytest.raises(StreamTppError, match="does not fit"):
        load(tmp_path)
