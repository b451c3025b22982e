"""A draft learns from histories that the model continued itself: those it meets when it samples."""

import numpy as np
import torch

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.training.continuations import continued
from stream_tpp.training.data import Batch, Crops, Observed
from stream_tpp.training.distillation import acceptance, train_draft
from stream_tpp.training.optimise import Schedule

SCALE = GapScale(0.0, 1.0, 1e-9)


def model() -> Model:
    """Its law depends strongly on the history, and it never gives what the log below holds."""
    torch.manual_seed(0)
    shape = TargetConfig(3, layers=1, heads=2, d_model=16, feedforward=16, components=2)
    one = Model.fresh(ModelConfig(shape, DraftConfig(d_model=16, components=2)), ("a", "b", "c"), SCALE, 12)
    with torch.no_grad():
        one.target.head.types[2].weight.mul_(8)  # type: ignore[union-attr, index, operator]
        one.target.encoder.event.kind.weight.mul_(3)  # type: ignore[union-attr, operator]
    return one


def crops(sequences: int, seed: int) -> Crops:
    """All of type 0, with gaps a thousand times too long."""
    random = np.random.default_rng(seed)
    past = [History(np.cumsum(random.exponential(1e3, 12)), np.zeros(12, np.int64)) for _ in range(sequences)]
    return Crops([Observed(one) for one in past], SCALE, 3, 12, 16)


def test_first_halves_are_kept_and_the_rest_is_simulated() -> None:
    short = Observed(History(np.array([4.0, 6.0]), np.array([0, 0])))
    long = Observed(History(np.arange(11.0) * 1e3, np.zeros(11, np.int64)))
    (batch,) = Crops([short, long], SCALE, 3, 12, 2).judged()
    ours = continued(batch, model(), seed=1)
    assert ours.histories.lengths.tolist() == batch.histories.lengths.tolist() == [3, 12]
    assert torch.equal(ours.histories.block.y[:, :2], batch.histories.block.y[:, :2])
    assert torch.equal(ours.histories.block.times[1, :6], batch.histories.block.times[1, :6])
    assert bool((ours.histories.block.times.diff(dim=-1) >= 0).all())
    assert float(ours.histories.block.times[1, 6:].diff().max()) < 500
    assert set(ours.histories.block.types[1, 6:].tolist()) != {0}
    assert not torch.equal(continued(batch, model(), seed=2).histories.block.times, ours.histories.block.times)


def test_a_draft_that_learned_from_simulated_histories_covers_the_target_better_where_it_samples() -> None:
    judged: list[Batch] = []
    found = []
    for simulated in (0.0, 0.5):
        one = model()
        judged = judged or [continued(batch, one, 7) for batch in crops(64, 2).judged()]
        schedule = Schedule(epochs=5, learning_rate=1e-2, patience=5)
        train_draft(
            one.draft,
            one.target,
            crops(64, 0),
            crops(16, 1),
            schedule,
            seed=0,
            steps=4,
            simulate=lambda batch, seed, one=one: continued(batch, one, seed),  # type: ignore[misc]
            simulated=simulated,
        )
        found.append(acceptance(one.draft, one.target, judged, steps=4))
    assert found[1] > found[0] + 0.02, found
