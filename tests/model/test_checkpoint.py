"""A model comes back from its folder as it went, or not at all, with a sentence that says why."""

import hashlib
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.binned import BinnedHead, TimeBins
from stream_tpp.model.bins import Bins
from stream_tpp.model.checkpoint import load, save
from stream_tpp.model.config import DraftConfig, DraftName, HeadName, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.pretrained import FLIGHTS

BINS = Bins.fit(torch.randn(500, generator=torch.Generator().manual_seed(0)) ** 3, 12)


def model(seed: int = 0, kind: DraftName = "anchored", head: HeadName = "mixture") -> Model:
    torch.manual_seed(seed)
    shape = {"layers": 2, "d_model": 16, "heads": 2, "feedforward": 16, "components": 2}
    target = TargetConfig(3, **shape, cycles=(86_400.0, 604_800.0), head=head, bins=len(BINS))  # type: ignore[arg-type]
    config = ModelConfig(target, DraftConfig(kind, d_model=8, components=2))
    fresh = Model.fresh(config, ("departed", "late", "cancelled"), GapScale(1.5, 2.0, 1e-9), window=64)
    fresh.facts = {"seed": seed}
    for module in (*fresh.target.modules(), *fresh.draft.modules()):
        if isinstance(module, TimeBins):
            module.cut(BINS)
    return fresh


@pytest.mark.parametrize("head", get_args(HeadName))
@pytest.mark.parametrize("kind", get_args(DraftName))
def test_a_saved_model_comes_back_the_same(tmp_path: Path, kind: DraftName, head: HeadName) -> None:
    saved = model(kind=kind, head=head)
    save(saved, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert (loaded.config, loaded.types, loaded.scale, loaded.window) == (saved.config, saved.types, saved.scale, saved.window)
    assert (loaded.facts, loaded.version) == (saved.facts, saved.version)
    for ours, theirs in ((saved.target, loaded.target), (saved.draft, loaded.draft)):
        for name, tensor in ours.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])
    assert not loaded.target.training
    assert not loaded.draft.training
    past = [History(np.array([1.0, 3.0, 4.5]), np.array([0, 2, 1]))]
    ours, theirs = (one.sample(past, max_events=5, paths=4, mode="block") for one in (saved, loaded))
    assert torch.equal(ours.times, theirs.times)
    assert torch.equal(ours.types, theirs.types)
    if isinstance(loaded.target.head, BinnedHead):
        assert torch.equal(loaded.target.head.bins.edges, BINS.edges)


def test_a_model_from_before_there_were_bins_is_still_itself(tmp_path: Path) -> None:
    shipped = load(FLIGHTS)
    version = shipped.version
    save(shipped, tmp_path)
    assert shipped.version == version
    for name in ("model.json", "target.safetensors", "draft.safetensors"):
        assert (tmp_path / name).read_bytes() == (FLIGHTS / name).read_bytes()


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["target", "draft"])
def test_weights_in_half_precision_are_refused_by_name(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    save(model(), tmp_path)
    path = tmp_path / f"{name}.safetensors"
    halved = {key: tensor.to(dtype) for key, tensor in load_file(path).items()}
    save_file(halved, path)
    document = json.loads((tmp_path / "model.json").read_text())
    document["sha256"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(StreamTppError, match=f"{name}.safetensors .* as {str(dtype)[6:]} where float32 is needed"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 0), ("window", "all"), ("scale", {"log_mean": "a", "log_std": 1.0, "floor": 1e-9}), ("types", ["a", "b", "c"])],
)
def test_a_description_changed_by_hand_is_refused(tmp_path: Path, name: str, value: object) -> None:
    save(model(), tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    document[name] = value
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(StreamTppError, match="was changed since the model was written"):
        load(tmp_path)


def test_what_has_no_place_in_a_network_is_refused(tmp_path: Path) -> None:
    save(model(), tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    document["config"]["target"]["dropout"] = 7
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(StreamTppError, match="does not fit its own description"):
        load(tmp_path)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StreamTppError, match="cannot be made"):
        save(model(), tmp_path / "file" / "m")
