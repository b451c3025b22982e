"""A law that is no density is found by quadrature, also where its own code says that all is well."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from stream_tpp.evaluation.mass import unnormalised
from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.bins import Bins

SCALE = GapScale(3.0, 1.5, 1e-6)


@pytest.fixture
def law() -> MixtureLaw:
    """Five places with components as narrow and as wide as a head gives them."""
    generator = torch.Generator().manual_seed(0)
    weights, locs, log_scales = (torch.randn(5, 12, generator=generator) for _ in range(3))
    return MixtureLaw.from_logits(weights, 3 * locs, (2 * log_scales).clamp(-5, 3), torch.randn(5, 4, generator=generator))


def test_a_normalised_law_integrates_to_1(law: MixtureLaw) -> None:
    assert unnormalised(law, SCALE).max() < 1e-6


def test_weights_that_do_not_sum_to_1_are_found(law: MixtureLaw) -> None:
    heavy = replace(law, log_weights=law.log_weights + torch.tensor([0.0, 0.0, 0.01, 0.0, 0.0])[:, None])
    assert np.flatnonzero(unnormalised(heavy, SCALE) > 1e-3).tolist() == [2]


def test_types_that_do_not_sum_to_1_are_found(law: MixtureLaw) -> None:
    assert (unnormalised(replace(law, log_types=law.log_types - 0.1), SCALE) > 0.05).all()


def test_a_law_over_bins_is_judged_as_well() -> None:
    generator = torch.Generator().manual_seed(0)
    bins = Bins.fit(torch.randn(3000, generator=generator) ** 3, 60)
    law = BinnedLaw.from_logits(torch.randn(3, 60, 4, generator=generator), bins)
    assert unnormalised(law, SCALE).max() < 1e-6
    heavy = replace(law, log_bins=law.log_bins + torch.tensor([0.0, 0.01, 0.0])[:, None])
    assert np.flatnonzero(unnormalised(heavy, SCALE) > 1e-3).tolist() == [1]
    assert np.isnan(unnormalised(replace(law, log_types=law.log_types * torch.nan), SCALE)).all()


@dataclass(frozen=True)
class Boastful(MixtureLaw):
    """Sound parameters, but the density that verification reads is a tenth too large."""

    def log_prob_gap(self, y: Tensor) -> Tensor:
        return super().log_prob_gap(y) + np.log(1.1)


def test_a_density_that_does_not_fit_its_parameters_is_found(law: MixtureLaw) -> None:
    boastful = Boastful(law.log_weights, law.locs, law.log_scales, law.log_types)
    assert unnormalised(boastful, SCALE) == pytest.approx([0.1] * 5, abs=1e-5)


@dataclass(frozen=True)
class Selfish(MixtureLaw):
    """Its density divides by the sum of weights that its sampling does not divide by: normal to itself alone."""

    def log_prob_gap(self, y: Tensor) -> Tensor:
        return super().log_prob_gap(y) - torch.logsumexp(self.log_weights, -1)


def test_parameters_are_judged_without_the_laws_own_code(law: MixtureLaw) -> None:
    selfish = Selfish(law.log_weights + 0.5, law.locs, law.log_scales, law.log_types)
    assert (unnormalised(selfish, SCALE) > 0.5).all()


def test_gaps_that_no_number_can_hold_do_not_count(law: MixtureLaw) -> None:
    far = replace(law, locs=torch.where(torch.arange(5)[:, None] == 3, 1e4, law.locs))
    assert unnormalised(far, SCALE)[3] == pytest.approx(1.0)


@pytest.mark.parametrize("part", ["log_weights", "locs", "log_scales", "log_types"])
def test_nan_is_no_law(law: MixtureLaw, part: str) -> None:
    values = getattr(law, part).clone()
    values[1, 0] = torch.nan
    assert np.flatnonzero(np.isnan(unnormalised(replace(law, **{part: values}), SCALE))).tolist() == [1]
