"""Small models with random weights: no forecasts, but laws with memory."""

from collections.abc import Callable

import pytest
import torch

from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model


def random_model(seed: int = 0, window: int = 6, types: tuple[str, ...] = ("0", "1")) -> Model:
    torch.manual_seed(seed)
    target = TargetConfig(len(types), layers=1, d_model=16, heads=2, feedforward=16, components=3)
    config = ModelConfig(target, DraftConfig(d_model=8, components=2))
    model = Model.fresh(config, types, GapScale(-1.0, 1.0, 1e-9), window)
    with torch.no_grad():
        for weights in model.target.head.parameters():
            weights.mul_(2.5)
    return model


@pytest.fixture
def make_model() -> Callable[..., Model]:
    return random_model
