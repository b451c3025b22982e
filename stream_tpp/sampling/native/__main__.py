"""Compile the sampler ahead of its first use: `python -m stream_tpp.sampling.native`, as when an image is built."""

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import ModelConfig, TargetConfig
from stream_tpp.model.model import Model

if __name__ == "__main__":
    target = TargetConfig(types=1, layers=1, heads=1, d_model=16, components=1)
    model = Model.fresh(ModelConfig(target), ("a",), GapScale(0.0, 1.0, 1e-3), 16)
    model.next_event([History()], now=0.0).median()
