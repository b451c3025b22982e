"""The loss is the likelihood of what was observed: gaps, types and quiet times, each where it is known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.bins import Bins
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.target import Target
from stream_tpp.training.data import Batch, Crops, Observed
from stream_tpp.training.likelihood import log_likelihood, negative_log_likelihood, train_target
from stream_tpp.training.optimise import Schedule

SCALE = GapScale(0.5, 2.0, 1e-9)


def same_law_everywhere(batch: Batch) -> MixtureLaw:
    shape = batch.histories.block.y.shape
    return MixtureLaw.from_logits(
        torch.tensor([0.2, 0.8]).log().expand(*shape, 2),
        torch.tensor([-1.0, 1.0]).expand(*shape, 2),
        torch.tensor([0.0, -1.0]).expand(*shape, 2),
        torch.tensor([0.7, 0.3]).log().expand(*shape, 2),
    )


def density(y: float) -> float:
    return float(0.2 * stats.norm.pdf(y, -1.0, 1.0) + 0.8 * stats.norm.pdf(y, 1.0, math.exp(-1.0)))


def survival(y: float) -> float:
    return float(0.2 * stats.norm.sf(y, -1.0, 1.0) + 0.8 * stats.norm.sf(y, 1.0, math.exp(-1.0)))


def test_gaps_types_and_quiet_times_add_up() -> None:
    history = History(np.array([1.0, 3.0, 8.0]), np.array([0, 1, 0]))
    (batch,) = Crops([Observed(history, end=18.0)], SCALE, 2, 10, 1).judged()
    found = log_likelihood(same_law_everywhere(batch), batch)
    y = [(math.log(gap) - 0.5) / 2.0 for gap in (2.0, 5.0, 10.0)]
    assert float(found.gaps) == pytest.approx(math.log(density(y[0])) + math.log(density(y[1])))
    assert float(found.types) == pytest.approx(2 * math.log(0.7) + math.log(0.3))
    assert float(found.quiet) == pytest.approx(math.log(survival(y[2])))
    assert float(found.loss) == pytest.approx(-float(found.gaps + found.types + found.quiet) / 3)


def test_a_type_is_judged_given_its_gap_or_whatever_the_gap_where_that_is_unknown() -> None:
    bins = Bins.of_normal(2)  # cut at 0
    log_tokens = torch.tensor([[0.1, 0.4], [0.3, 0.2]]).log()
    history = History(np.array([1.0, 1.0 + math.exp(0.5 + 2.0 * 0.7)]), np.array([0, 1]))
    (batch,) = Crops([Observed(history)], SCALE, 2, 10, 1).judged()
    law = BinnedLaw.from_logits(log_tokens.expand(*batch.histories.block.y.shape, 2, 2), bins)
    found = log_likelihood(law, batch)
    assert float(found.types) == pytest.approx(math.log(0.4) + math.log(0.2 / 0.5), rel=1e-6)


def test_padding_adds_nothing() -> None:
    long = Observed(History(np.arange(9.0), np.ones(9, np.int64)))
    short = Observed(History(np.array([5.0, 7.0]), np.array([1, 0])), end=9.0)
    (together,) = Crops([long, short], SCALE, 2, 20, 2).judged()
    apart = [next(iter(Crops([one], SCALE, 2, 20, 1).judged())) for one in (long, short)]
    found = log_likelihood(same_law_everywhere(together), together)
    parts = [log_likelihood(same_law_everywhere(batch), batch) for batch in apart]
    for name in ("gaps", "types", "quiet", "events"):
        assert float(getattr(found, name)) == pytest.approx(sum(float(getattr(part, name)) for part in parts))


def test_likelihood_in_seconds_does_not_depend_on_the_gap_scale() -> None:
    """A log-normal renewal law, told in two coordinates."""

    class Renewal(Target):
        def forward(self, block):  # type: ignore[no-untyped-def]
            mean, std = (1.0 - self.scale.log_mean) / self.scale.log_std, 0.7 / self.scale.log_std
            shape = block.y.shape
            law = MixtureLaw.from_logits(
                torch.zeros(*shape, 1),
                torch.full((*shape, 1), mean),
                torch.full((*shape, 1), math.log(std)),
                torch.zeros(*shape, 2),
            )
            return law, None

    history = History(np.cumsum([1.0, 3.0, 2.0, 9.0]), np.zeros(4, np.int64))
    direct = -(stats.lognorm.logpdf(np.array([3.0, 2.0, 9.0]), 0.7, scale=math.e).sum() + 4 * math.log(0.5)) / 4
    for scale in (SCALE, GapScale(-2.0, 0.3, 1e-9)):
        model = Renewal(TargetConfig(2, layers=1))
        model.scale = scale  # type: ignore[assignment]
        batches = Crops([Observed(history)], scale, 2, 10, 1).judged()
        assert negative_log_likelihood(model, batches, scale) == pytest.approx(direct, rel=1e-5)


def alternating(sequences: int, seed: int) -> list[Observed]:
    """Types take turns; the gap after type 0 is about 1 second, after type 1 about 20."""
    random, made = np.random.default_rng(seed), []
    for _ in range(sequences):
        types = (np.arange(20) + random.integers(2)) % 2
        gaps = np.where(np.roll(types, 1) == 0, 1.0, 20.0) * np.exp(0.3 * random.standard_normal(20))
        made.append(Observed(History(np.cumsum(gaps), types)))
    return made


def test_training_finds_a_law_that_depends_on_the_last_type() -> None:
    torch.manual_seed(0)
    target = Target(TargetConfig(2, layers=1, heads=2, d_model=16, feedforward=16, components=2, time_scale=10.0))
    train, validation = (Crops(alternating(n, s), GapScale(1.5, 1.5, 1e-9), 2, 20, 16) for n, s in ((160, 0), (40, 1)))
    train_target(target, train, validation, Schedule(epochs=25, learning_rate=2e-2), seed=0)
    entropy = np.mean([stats.norm(0, 0.3).entropy() + math.log(1.0), stats.norm(0, 0.3).entropy() + math.log(20.0)])
    nll = negative_log_likelihood(target, validation.judged(), GapScale(1.5, 1.5, 1e-9))
    # 19 gaps of 20 events count, and the first type of a sequence is a coin.
    assert nll == pytest.approx(19 / 20 * entropy + math.log(2) / 20, abs=0.1)
