"""A running worker takes up a new model from its folder, and no bad one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from stream_tpp.forecast import Forecaster
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.checkpoint import load, save
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.sampler import Sampler
from stream_tpp.topologies.pick_up import PickUp


def model(seed: int, types: tuple[str, ...] = ("late", "cancelled")) -> Model:
    torch.manual_seed(seed)
    target = TargetConfig(len(types), layers=1, d_model=8, heads=1, feedforward=8, components=2)
    return Model.fresh(ModelConfig(target, DraftConfig(d_model=8, components=2)), types, GapScale(4.0, 0.5, 1e-3), window=16)


def forecaster(loaded: Model) -> Forecaster:
    return Forecaster(loaded, horizon=60.0, paths=2)


class Folder:
    """A folder with a model, and the sampler that uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        save(model(0), path)
        self.counters = Counters()
        self.sampler: Sampler[str] = Sampler(forecaster(load(path)), lambda by, answers: None, self.counters)
        self.pick_up = PickUp(path, forecaster, self.sampler, self.counters, every=1.0)

    async def look(self) -> tuple[str, int, int]:
        """The version in use after a look, and how many models were taken up and refused so far."""
        await self.pick_up.look()
        return self.sampler.forecaster.version, self.counters.models_taken_up, self.counters.models_refused


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "model")


async def test_a_new_model_is_taken_up_once(folder: Folder) -> None:
    old = folder.sampler.forecaster.version
    assert await folder.look() == (old, 0, 0)
    save(newer := model(1), folder.path)
    assert newer.version != old
    assert await folder.look() == (newer.version, 1, 0)
    assert await folder.look() == (newer.version, 1, 0)
    save(newer, folder.path)
    assert await folder.look() == (newer.version, 1, 0)


async def test_a_damaged_model_is_refused_and_taken_up_once_it_is_whole(folder: Folder, caplog) -> None:
    old = folder.sampler.forecaster.version
    save(newer := model(1), folder.path)
    weights = folder.path / "target.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert await folder.look() == (old, 0, 1)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"The model in use stays, version {old}")
    assert "truncated" in record.getMessage()
    assert record.exc_info is None
    assert await folder.look() == (old, 0, 1)
    weights.write_bytes(whole)
    assert await folder.look() == (newer.version, 1, 1)


async def test_a_model_of_other_types_is_refused(folder: Folder, caplog) -> None:
    old = folder.sampler.forecaster.version
    save(model(1, ("cancelled", "late")), folder.path)
    assert await folder.look() == (old, 0, 1)
    assert "(cancelled, late) than the one in use (late, cancelled)" in caplog.text


async def test_a_folder_that_is_gone_changes_nothing(folder: Folder) -> None:
    old = folder.sampler.forecaster.version
    shutil.rmtree(folder.path)
    assert await folder.look() == (old, 0, 1)
