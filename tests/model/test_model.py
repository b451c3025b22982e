"""What a user asks of a model in Python."""

import numpy as np
import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model

HISTORIES = [History(np.array([1.0, 3.0, 4.5]), np.array([0, 2, 1])), History(np.array([2.0]), np.array([1])), History()]


def model() -> Model:
    torch.manual_seed(0)
    target = TargetConfig(3, layers=2, heads=2, d_model=16, feedforward=16, components=2)
    return Model.fresh(
        ModelConfig(target, DraftConfig(d_model=8, components=2)), ("a", "b", "c"), GapScale(0.0, 1.0, 1e-9), window=8
    )


def test_futures_come_after_now_within_the_horizon() -> None:
    futures = model().sample(HISTORIES, now=6.0, horizon=30.0, paths=5, seed=0)
    assert futures.times.shape[:2] == (3, 5)
    here = futures.types >= 0
    assert ((futures.times > 6.0) & (futures.times <= 36.0))[here].all()


def test_the_same_seed_gives_the_same_futures_and_every_history_its_own() -> None:
    one, same, other = (model().sample([HISTORIES[0]] * 2, max_events=4, paths=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.times, same.times)
    assert not torch.equal(one.times, other.times)
    assert not torch.equal(one.times[0], one.times[1])


def test_each_history_can_have_a_now_of_its_own() -> None:
    futures = model().sample(HISTORIES[:2], now=[5.0, 50.0], max_events=2, paths=4)
    assert (futures.times[0].min() > 5.0) & (futures.times[1].min() > 50.0)
    with pytest.raises(StreamTppError, match="now"):
        model().sample(HISTORIES[:1], now=4.0, max_events=2)


def test_the_law_of_the_next_event_is_that_of_the_history_alone() -> None:
    together = model().law(HISTORIES)
    for row, history in enumerate(HISTORIES):
        alone = model().law([history])
        torch.testing.assert_close(together.log_types[row], alone.log_types[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.locs[row], alone.locs[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_is_moved_to_a_device_but_not_to_another_precision(dtype: torch.dtype) -> None:
    one = model()
    expected = one.sample(HISTORIES, max_events=3, paths=2).times
    for convert in (lambda: one.to(dtype=dtype), lambda: one.target.to(dtype), lambda: one.draft.to(dtype=dtype)):
        with pytest.raises(StreamTppError, match=f"float32 and can't be made {str(dtype)[6:]}"):
            convert()
    assert torch.equal(one.to("cpu").sample(HISTORIES, max_events=3, paths=2).times, expected)


def test_a_callers_autocast_does_not_reach_the_networks() -> None:
    expected = model().sample(HISTORIES, max_events=3, paths=2).times
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model().sample(HISTORIES, max_events=3, paths=2).times, expected)
