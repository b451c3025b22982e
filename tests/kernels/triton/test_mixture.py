"""Each kernel against the PyTorch reference of its name, on usual and on extreme inputs."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor

from stream_tpp.kernels import mixture as reference
from stream_tpp.kernels.random import uniform
from stream_tpp.kernels.triton import mixture

TINY = 2.0**-53


def close(there: Tensor, expected: Tensor, tolerance: float = 1e-13) -> None:
    torch.testing.assert_close(there, expected, rtol=tolerance, atol=tolerance)


def parameters(places: int, components: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    weights, locs, log_scales = torch.randn(3, places, components, generator=random, dtype=torch.float64)
    return torch.log_softmax(2 * weights, -1), 2 * locs, log_scales - 1


def normal(places: int) -> tuple[Tensor, Tensor, Tensor]:
    """One standard normal, so that the kernels are its distribution function and its quantiles."""
    zeros = torch.zeros(places, 1, dtype=torch.float64)
    return zeros, zeros, zeros


def spread(places: int, widest: float) -> Tensor:
    """Both infinities and numbers of every size between -widest and widest."""
    sizes = torch.logspace(-9, np.log10(widest), (places - 3) // 2, dtype=torch.float64)
    ends = torch.tensor([-torch.inf, 0.0, torch.inf], dtype=torch.float64)
    return torch.cat([-sizes, sizes, ends])


@pytest.mark.parametrize("components", [1, 5, 64])
@pytest.mark.parametrize("operation", ["log_density", "log_survival"])
def test_log_density_and_log_survival_are_the_references(interpreted: Any, operation: str, components: int) -> None:
    given = parameters(81, components)
    for widest in (3.0, 1e6):
        y = spread(81, widest)
        there = interpreted(getattr(mixture, operation), y, *given)
        close(there, getattr(reference, operation)(y, *given))


@pytest.mark.parametrize(("components", "places"), [(1, 300), (5, 40), (64, 5)])
def test_draws_are_the_references(interpreted: Any, components: int, places: int) -> None:
    given = parameters(places, components)
    u = uniform(torch.arange(places), 0, 0, 2)
    close(interpreted(mixture.sample, u, *given), reference.sample(u, *given))
    for y_low in (-torch.inf, -3.0, 0.4, 60.0, 1e5):
        low = torch.full((places,), y_low, dtype=torch.float64)
        there = interpreted(mixture.sample_above, low, u, *given)
        close(there, reference.sample_above(low, u, *given), 1e-12)
        assert bool((there >= low).all())


def test_the_normal_distribution_function_is_scipys_however_far_out(interpreted: Any) -> None:
    y = spread(2003, 1e7)
    log_survival = interpreted(mixture.log_survival, y, *normal(2003))
    np.testing.assert_allclose(log_survival.numpy(), special.log_ndtr(-y.numpy()), rtol=1e-12, atol=1e-300)


def test_normal_quantiles_are_scipys_from_one_end_to_the_other(interpreted: Any) -> None:
    ends = torch.logspace(-15.9, -0.31, 500, dtype=torch.float64)
    least = torch.tensor([TINY], dtype=torch.float64)
    p = torch.cat([least, ends, torch.linspace(0.05, 0.95, 1001, dtype=torch.float64), 1 - ends, 1 - least])
    u = torch.stack([p, p], -1)
    there = interpreted(mixture.sample, u, *normal(len(p)))
    np.testing.assert_allclose(there.numpy(), special.ndtri(p.numpy()), rtol=1e-14, atol=1e-15)


def test_quantiles_in_the_tail_are_scipys_also_where_probabilities_underflow(interpreted: Any) -> None:
    low = torch.cat([torch.linspace(-6, 40, 500, dtype=torch.float64), torch.logspace(1.6, 6, 200, dtype=torch.float64)])
    u = torch.full((700, 2), 0.3, dtype=torch.float64)
    there = interpreted(mixture.sample_above, low, u, *normal(700))
    log_p = special.log_ndtr(-low.numpy()) + np.log(0.3)
    np.testing.assert_allclose(there.numpy(), np.maximum(-special.ndtri_exp(log_p), low.numpy()), rtol=1e-12)
    back = special.log_ndtr(-there.numpy())
    np.testing.assert_allclose(back, log_p, rtol=1e-14)


def test_the_ends_of_the_uniform_numbers_give_finite_draws(interpreted: Any) -> None:
    ends = torch.tensor([TINY, 1 - TINY], dtype=torch.float64)
    u = torch.cartesian_prod(ends, ends)
    given = parameters(4, 5)
    close(interpreted(mixture.sample, u, *given), reference.sample(u, *given))
    for y_low in (-torch.inf, 0.0, 60.0):
        low = torch.full((4,), y_low, dtype=torch.float64)
        there = interpreted(mixture.sample_above, low, u, *given)
        close(there, reference.sample_above(low, u, *given), 1e-7)


def test_a_component_of_weight_zero_is_never_drawn(interpreted: Any) -> None:
    """At each step of the cumulative weights too, where rounding decides; the locations tell which was drawn."""
    weights = torch.tensor([0.0, 0.3, 0.0, 0.1, 0.6 - 1e-9, 1e-9, 0.0], dtype=torch.float64)
    steps = weights.cumsum(-1).clamp(TINY, 1 - TINY)
    u = torch.cat([steps, torch.nextafter(steps, steps * 0), torch.nextafter(steps, steps + 1)]).clamp(TINY, 1 - TINY)
    places = len(u)
    locs = torch.arange(7, dtype=torch.float64).expand(places, 7)
    given = weights.log().expand(places, 7), locs, torch.full((places, 7), -30.0, dtype=torch.float64)
    drawn = interpreted(mixture.sample, torch.stack([u, torch.full_like(u, 0.5)], -1), *given).round().long()
    assert bool((weights[drawn] > 0).all())


@pytest.mark.parametrize("operation", ["log_density", "log_survival"])
def test_nan_is_answered_with_nan(interpreted: Any, operation: str) -> None:
    given = parameters(4, 3)
    for place, parameter in enumerate(given):
        parameter[place, place] = torch.nan
    there = interpreted(getattr(mixture, operation), torch.zeros(4, dtype=torch.float64), *given)
    assert torch.isnan(there).tolist() == [True, True, True, False]


def test_shapes_are_broadcast_as_by_the_reference(interpreted: Any) -> None:
    log_weights, locs, log_scales = (t.reshape(3, 4, 5) for t in parameters(12, 5))
    y = torch.linspace(-1, 1, 4, dtype=torch.float64)
    expanded = log_weights[:, :1].expand(3, 4, 5), locs, log_scales
    close(interpreted(mixture.log_density, y, *expanded), reference.log_density(y, *expanded))
    u = uniform(torch.arange(12).reshape(3, 4), 0, 0, 3)[..., :2]
    close(interpreted(mixture.sample, u, *expanded), reference.sample(u, *expanded))
