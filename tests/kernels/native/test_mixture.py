"""Mixtures in machine code, against the reference, from the same numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from stream_tpp.kernels import mixture as reference
from stream_tpp.kernels.native import mixture

Numbers = NDArray[np.float64]
SCRATCH = np.zeros(64)


def components(count: int, seed: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    return np.log(rng.dirichlet(np.full(count, 0.5))), rng.normal(size=count) * 3, rng.uniform(-4, 2, count)


def tensors(*values: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(value, dtype=torch.float64) for value in values]


@pytest.mark.parametrize("count", [1, 3, 64])
@pytest.mark.parametrize("y", [-300.0, -4.0, 0.0, 0.7, 50.0])
def test_density_and_survival(count: int, y: float) -> None:
    law = components(count)
    assert mixture.log_density(y, *law, SCRATCH) == pytest.approx(float(reference.log_density(*tensors(y, *law))), rel=1e-11)
    assert mixture.log_survival(y, *law, SCRATCH) == pytest.approx(
        float(reference.log_survival(*tensors(y, *law))), rel=1e-11, abs=1e-15
    )


def test_everything_is_above_minus_infinity() -> None:
    assert mixture.log_survival(-np.inf, *components(5), SCRATCH) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("count", [1, 3, 64])
@pytest.mark.parametrize("low", [-np.inf, -2.0, 3.0, 40.0])
def test_draws_are_those_of_the_reference(count: int, low: float) -> None:
    law, rng = components(count, 1), np.random.default_rng(2)
    for u in rng.random((300, 2)):
        assert mixture.sample(*u, *law) == pytest.approx(float(reference.sample(*tensors(u, *law))), rel=1e-9, abs=1e-12)
        drawn = mixture.sample_above(low, *u, *law, SCRATCH)
        assert drawn == pytest.approx(float(reference.sample_above(*tensors(low, u, *law))), rel=1e-9, abs=1e-12)
        assert drawn >= low


def test_what_has_no_chance_is_never_drawn() -> None:
    log_p = np.array([-np.inf, np.log(0.25), -np.inf, np.log(0.75), -np.inf])
    drawn = [mixture.categorical(u, log_p) for u in (1e-300, 0.2499, 0.2501, 1 - 2.0**-53)]
    assert drawn == [1, 1, 3, 3]
    uniform = np.random.default_rng(0).random(4000)
    assert np.mean([mixture.categorical(u, log_p) == 1 for u in uniform]) == pytest.approx(0.25, abs=0.03)


def test_nan_comes_out_as_nan() -> None:
    law = np.array([np.nan, -1.0]), np.zeros(2), np.zeros(2)
    assert np.isnan(mixture.log_density(0.0, *law, SCRATCH))
