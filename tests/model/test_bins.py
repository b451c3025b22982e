"""Bins of the gap: cut from data, and the law inside each is the data's own."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.random import uniform
from stream_tpp.model.bins import Bins, Spacing

LEVEL = 1e-4


def gaps(n: int = 20_000, seed: int = 0) -> Tensor:
    """A skewed law of two humps."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randn(n, generator=random, dtype=torch.float64)
    return torch.where(torch.rand(n, generator=random) < 0.7, 0.4 * y - 0.5, 0.8 * y + 1.2)


def numbers(n: int, seed: int = 0) -> Tensor:
    return uniform(torch.tensor(seed), 0, 0, n)


def drawn(bins: Bins, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaps from the base law over all bins, and the bins that they were drawn in."""
    which = torch.searchsorted(bins.log_mass.exp().cumsum(0), numbers(n, seed)).clamp(max=len(bins) - 1)
    return bins.draw(which, numbers(n, seed + 1)), which


def test_bins_by_quantile_hold_equal_shares_of_the_data() -> None:
    y = gaps()
    bins = Bins.fit(y, 80)
    assert len(bins) == 80
    assert bool((bins.edges.diff() > 0).all())
    counts = torch.bincount(bins.find(y), minlength=80)
    np.testing.assert_allclose(counts.numpy() / len(y), 1 / 80, atol=2e-3)


def test_bins_by_width_are_equally_wide() -> None:
    bins = Bins.fit(gaps(), 50, "width")
    assert len(bins) == 50
    torch.testing.assert_close(bins.edges.diff(), bins.edges.diff().mean().expand(48))


@pytest.mark.parametrize("bins", [Bins.fit(gaps(), 60), Bins.fit(gaps(), 60, "width"), Bins.of_normal(60)])
def test_the_density_in_each_bin_integrates_to_one(bins: Bins) -> None:
    ends = torch.cat([torch.tensor([-40.0], dtype=torch.float64), bins.edges, torch.tensor([40.0], dtype=torch.float64)])
    for j in range(60):
        y = torch.linspace(float(ends[j]), float(ends[j + 1]), 20_001, dtype=torch.float64)[:-1]
        y = y + (ends[j + 1] - ends[j]) / 40_000
        assert bool((bins.find(y) == j).all())
        mass = bins.log_density(y, torch.full((20_000,), j)).exp().sum() * (ends[j + 1] - ends[j]) / 20_000
        assert float(mass) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("spacing", ["quantile", "width"])
def test_gaps_drawn_from_the_bins_are_like_the_data_that_made_them(spacing: Spacing) -> None:
    y, _ = drawn(Bins.fit(gaps(), 50, spacing), 20_000)
    assert stats.ks_2samp(y.numpy(), gaps(seed=1).numpy()).pvalue > LEVEL


def test_a_gap_is_drawn_inside_its_bin_whatever_the_number() -> None:
    bins = Bins.fit(gaps(), 50)
    ends = torch.tensor([2.0**-53, 2.0**-30, 0.5, 1 - 2.0**-30, 1 - 2.0**-53], dtype=torch.float64)
    which = torch.arange(50)[:, None].expand(50, 5)
    y = bins.draw(which, ends.expand(50, 5))
    assert bool(torch.isfinite(y).all())
    assert torch.equal(bins.find(y), which)
    y, which = drawn(bins, 100_000)
    assert torch.equal(bins.find(y), which)


def test_gaps_do_not_pile_up_on_the_edges() -> None:
    """As many within a hair of an edge as the density there says, and no two alike."""
    bins, draws, hair = Bins.fit(gaps(), 100), 200_000, 2e-4
    y, _ = drawn(bins, draws)
    near = ((y[:, None] - bins.edges).abs() < hair).sum()
    there = torch.cat([bins.edges - hair / 2, bins.edges + hair / 2])
    which = bins.find(there)
    expected = draws * hair * float((bins.log_density(there, which) + bins.log_mass[which]).exp().sum())
    assert stats.poisson.cdf(float(near), expected) > LEVEL
    assert stats.poisson.sf(float(near), expected) > LEVEL
    assert len(set(y.tolist())) == draws


@pytest.mark.parametrize("y_low", [-9.0, -0.2, 1.5, 4.0, 60.0, 1e4])
def test_what_is_left_of_a_bin_is_drawn_as_what_is_left_of_it(y_low: float) -> None:
    """The share of it that is above a draw is uniform, also in the last bin far past all data."""
    bins, draws = Bins.fit(gaps(), 20), 20_000
    low = torch.full((draws,), y_low, dtype=torch.float64)
    which = bins.find(low)
    y = bins.draw(which, numbers(draws), low)
    assert bool((y >= low).all())
    assert torch.equal(bins.find(y), which)
    left = bins.log_above(y, which) - bins.log_above(low, which)
    assert stats.kstest(left.exp().numpy(), "uniform").pvalue > LEVEL


def test_shares_above_and_densities_are_of_one_law() -> None:
    bins, step = Bins.fit(gaps(), 20), 1e-6
    y = torch.linspace(-5, 7, 997, dtype=torch.float64)
    below, above = y - step, y + step
    same = (bins.find(below) == bins.find(above)) & ((bins.knots[:, None] - y).abs().amin(0) > step)
    which = bins.find(y)
    slope = (bins.log_above(below, which).exp() - bins.log_above(above, which).exp()) / (2 * step)
    torch.testing.assert_close(bins.log_density(y, which).exp()[same], slope[same], rtol=1e-4, atol=1e-8)
    assert int(same.sum()) > 900


def test_gaps_unlike_any_of_the_data_have_a_density_all_the_same() -> None:
    bins = Bins.fit(gaps(), 50)
    y = torch.tensor([-45.0, -10.0, 10.0, 45.0], dtype=torch.float64)
    which = bins.find(y)
    assert which.tolist() == [0, 0, 49, 49]
    density = bins.log_density(y, which)
    assert bool(torch.isfinite(density).all())
    assert float(density[0]) < float(density[1])
    assert float(density[3]) < float(density[2])


@pytest.mark.parametrize("noise", [0.0, 2e-8])
def test_a_gap_seen_again_and_again_keeps_its_share_and_its_place(noise: float) -> None:
    """Ties at the floor and whole seconds, with the rounding noise of absolute times around them."""
    random = torch.Generator().manual_seed(1)
    ties, minutes = torch.full((6000,), -3.0, dtype=torch.float64), torch.full((4000,), 0.7, dtype=torch.float64)
    y = torch.cat([ties, minutes, gaps(10_000)])
    y = y + noise * torch.randn(y.shape, generator=random, dtype=torch.float64)
    bins = Bins.fit(y, 100)
    assert 50 <= len(bins) < 100
    again, _ = drawn(bins, 20_000)
    for value, share in ((-3.0, 0.3), (0.7, 0.2)):
        assert float(((again - value).abs() < 5e-3).double().mean()) == pytest.approx(share, abs=0.015)
        own = bins.find(torch.tensor([value], dtype=torch.float64))
        assert float(bins.log_mass[own].exp()) == pytest.approx(share, abs=0.015)
    assert float(((again > -2.9) & (again < -2.4)).double().mean()) < 0.01


def test_gaps_that_are_all_alike_still_have_a_law() -> None:
    bins = Bins.fit(torch.full((500,), 0.3, dtype=torch.float64), 50)
    y, which = drawn(bins, 2000)
    assert float((y - 0.3).abs().quantile(0.99)) < 0.02
    assert bool(torch.isfinite(bins.log_density(y, which)).all())


def test_a_handful_of_gaps_is_enough() -> None:
    bins = Bins.fit(torch.tensor([0.1, 0.2, 0.9, -2.0], dtype=torch.float64), 50)
    assert len(bins) == 50
    y, _ = drawn(bins, 2000)
    assert -4 < float(y.quantile(0.01)) < -1.9
    assert 0.8 < float(y.quantile(0.99)) < 2


@pytest.mark.parametrize("y", [[], [0.1, float("nan")], [float("inf")]])
def test_no_gaps_or_senseless_ones_are_refused_in_a_sentence(y: list[float]) -> None:
    with pytest.raises(StreamTppError, match="at least one gap"):
        Bins.fit(torch.tensor(y), 50)
