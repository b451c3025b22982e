"""Mixtures of normals against SciPy, as far out as float64 goes."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from scipy.special import logsumexp
from torch import Tensor

from stream_tpp.kernels import mixture
from stream_tpp.kernels.random import uniform

LEVEL = 1e-4
DRAWS = 40_000


def parameters(seed: int = 0, places: int = 40, components: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    weights, locs, log_scales = torch.randn(3, places, components, generator=random, dtype=torch.float64)
    return torch.log_softmax(2 * weights, -1), 2 * locs, log_scales - 1


ONE = tuple(t[0] for t in parameters(7))
"""A mixture of five components."""


def numbers(draws: int, n: int, seed: int = 0) -> Tensor:
    return uniform(torch.arange(draws) + 1_000_003 * seed, 0, 0, n)


def expanded(draws: int) -> tuple[Tensor, ...]:
    return tuple(t.expand(draws, -1) for t in ONE)


def scipy_log_survival(y: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    tails = stats.norm.logsf(y[..., None].numpy(), locs.numpy(), log_scales.exp().numpy())
    return torch.from_numpy(np.asarray(logsumexp(log_weights.numpy() + tails, axis=-1)))


@pytest.mark.parametrize("spread", [1.0, 30.0, 1e4])
def test_log_density_and_log_survival_are_scipys(spread: float) -> None:
    log_weights, locs, log_scales = given = parameters()
    y = torch.linspace(-spread, spread, 40, dtype=torch.float64)
    normal = stats.norm.logpdf(y[:, None].numpy(), locs.numpy(), log_scales.exp().numpy())
    density = torch.from_numpy(logsumexp(log_weights.numpy() + normal, axis=-1))
    torch.testing.assert_close(mixture.log_density(y, *given), density, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(mixture.log_survival(y, *given), scipy_log_survival(y, *given), rtol=1e-12, atol=1e-13)


def test_nothing_is_below_minus_infinity_and_nothing_above_infinity() -> None:
    given = parameters()
    ends = torch.full((40,), torch.inf, dtype=torch.float64)
    torch.testing.assert_close(mixture.log_survival(-ends, *given), torch.zeros_like(ends), rtol=0.0, atol=1e-14)
    assert bool((mixture.log_survival(ends, *given) == -torch.inf).all())
    assert bool((mixture.log_density(ends, *given) == -torch.inf).all())


def test_the_density_is_the_slope_of_the_survival_function() -> None:
    given, step = parameters(3), 1e-5
    y = torch.linspace(-4, 4, 40, dtype=torch.float64)
    slope = (mixture.log_survival(y - step, *given).exp() - mixture.log_survival(y + step, *given).exp()) / (2 * step)
    torch.testing.assert_close(mixture.log_density(y, *given).exp(), slope, rtol=1e-5, atol=1e-8)


def test_a_draw_is_the_normal_quantile_of_the_component_that_its_first_number_picks() -> None:
    log_weights, locs, log_scales = ONE
    u = numbers(200, 2)
    component = np.searchsorted(np.cumsum(log_weights.exp().numpy()), u[:, 0].numpy())
    expected = locs.numpy()[component] + log_scales.exp().numpy()[component] * stats.norm.ppf(u[:, 1].numpy())
    np.testing.assert_allclose(mixture.sample(u, *expanded(200)).numpy(), expected, rtol=1e-12)


def test_draws_follow_the_law() -> None:
    y = mixture.sample(numbers(DRAWS, 2), *expanded(DRAWS))
    survival = mixture.log_survival(y, *expanded(DRAWS)).exp()
    assert stats.kstest(survival.numpy(), "uniform").pvalue > LEVEL


@pytest.mark.parametrize("y_low", [-torch.inf, -5.0, 0.3, 4.0, 60.0, 1e4])
def test_truncated_draws_follow_the_law_of_what_is_left_however_little_that_was(y_low: float) -> None:
    """S(y) / S(y_low) is uniform; at 60 and 1e4 the chance of what is left is far below the least float64."""
    low = torch.full((DRAWS,), y_low, dtype=torch.float64)
    y = mixture.sample_above(low, numbers(DRAWS, 2, 1), *expanded(DRAWS))
    assert bool((y >= low).all())
    left = mixture.log_survival(y, *expanded(DRAWS)) - mixture.log_survival(low, *expanded(DRAWS))
    assert stats.kstest(left.exp().numpy(), "uniform").pvalue > LEVEL


def test_the_truncations_above_do_reach_past_the_least_float() -> None:
    far = torch.tensor([60.0, 1e4], dtype=torch.float64)
    assert bool((mixture.log_survival(far, *expanded(2)) < math.log(5e-324)).all())


def test_untruncated_draws_are_the_draws_given_that_nothing_is_known() -> None:
    u = numbers(500, 2)
    nothing = torch.full((500,), -torch.inf, dtype=torch.float64)
    flipped = torch.stack((u[:, 0], 1 - u[:, 1]), -1)  # above a bound, the second number counts from the top
    drawn, above = mixture.sample(flipped, *expanded(500)), mixture.sample_above(nothing, u, *expanded(500))
    torch.testing.assert_close(drawn, above, rtol=1e-9, atol=1e-9)


def test_no_number_makes_a_draw_that_is_not_finite() -> None:
    ends = torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)
    u = torch.cartesian_prod(ends, ends)
    assert bool(torch.isfinite(mixture.sample(u, *expanded(4))).all())
    for y_low in (-torch.inf, 0.0, 60.0, 1e7):
        low = torch.full((4,), y_low, dtype=torch.float64)
        assert bool(torch.isfinite(mixture.sample_above(low, u, *expanded(4))).all())


def test_categorical_draws_follow_their_probabilities() -> None:
    probabilities = torch.tensor([0.05, 0.0, 0.6, 0.35, 0.0], dtype=torch.float64)
    drawn = mixture.categorical(numbers(DRAWS, 1)[:, 0], probabilities.log().expand(DRAWS, -1))
    counts = torch.bincount(drawn, minlength=5)
    assert counts[1] == counts[4] == 0
    assert stats.chisquare(counts[[0, 2, 3]].numpy(), DRAWS * probabilities[[0, 2, 3]].numpy()).pvalue > LEVEL


def test_an_index_of_probability_zero_is_never_drawn() -> None:
    """At the ends of (0, 1), at every step of the cumulative sum and a rounding error around it, with sums that round badly."""
    random = torch.Generator().manual_seed(5)
    for kinds in (2, 7, 50, 300):
        log_p = 8 * torch.randn(kinds, generator=random, dtype=torch.float64)
        impossible = torch.rand(kinds, generator=random) < 0.5
        impossible[-1] = True
        impossible[kinds // 2] = False
        log_p = torch.log_softmax(log_p.masked_fill(impossible, -torch.inf), -1)
        steps = log_p.exp().cumsum(-1)
        u = torch.cat([steps, torch.nextafter(steps, steps * 0), torch.nextafter(steps, steps + 1), steps / steps[-1]])
        u = torch.cat([u, torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)]).clamp(2.0**-53, 1 - 2.0**-53)
        drawn = mixture.categorical(u, log_p.expand(len(u), -1))
        assert not bool(impossible[drawn].any())


def test_quantiles_of_log_probabilities_are_scipys_also_where_exp_underflows() -> None:
    underflow = torch.linspace(-760, -690, 141, dtype=torch.float64)
    log_p = torch.cat([-torch.logspace(-12, 12, 400, dtype=torch.float64), underflow])
    z = mixture.log_ndtri(log_p)
    near_one = log_p > -1e-4  # where float64 itself holds no more of the probability than its distance from 1
    np.testing.assert_allclose(z[~near_one].numpy(), special.ndtri_exp(log_p[~near_one].numpy()), rtol=1e-10)
    np.testing.assert_allclose(z[near_one].numpy(), special.ndtri_exp(log_p[near_one].numpy()), rtol=1e-4)
    torch.testing.assert_close(torch.special.log_ndtr(z[z < 0]), log_p[z < 0], rtol=1e-11, atol=0.0)


def test_quantiles_are_continuous_where_the_formula_changes() -> None:
    log_p = torch.linspace(-701, -699, 2001, dtype=torch.float64)
    steps = mixture.log_ndtri(log_p).diff()
    torch.testing.assert_close(steps, steps.mean().expand_as(steps), rtol=2e-3, atol=0.0)
