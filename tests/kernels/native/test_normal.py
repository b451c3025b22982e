"""The normal distribution in machine code, against torch's."""

import math

import pytest
import torch

from stream_tpp.kernels import mixture
from stream_tpp.kernels.native import normal

FAR = [-1e160, -1e3, -40.0, -5.0, -1.0, -0.1, 0.0, 0.1, 1.0, 5.0, 9.0, 40.0, 1e3, -math.inf, math.inf]


@pytest.mark.parametrize("z", FAR)
def test_log_ndtr_is_right_however_far_out(z: float) -> None:
    expected = float(torch.special.log_ndtr(torch.tensor(z, dtype=torch.float64)))
    if math.isfinite(expected):
        assert normal.log_ndtr(z) == pytest.approx(expected, rel=1e-12, abs=1e-300)
    else:
        assert normal.log_ndtr(z) < -1e300


@pytest.mark.parametrize("p", [1e-300, 1e-20, 1e-5, 0.0749, 0.0751, 0.3, 0.5, 0.7, 0.97, 1 - 1e-10])
def test_ndtri_is_its_inverse(p: float) -> None:
    assert normal.ndtri(p) == pytest.approx(
        float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64))), rel=1e-11, abs=1e-13
    )


@pytest.mark.parametrize("log_p", [-1e5, -800.0, -700.0, -699.0, -10.0, -1.0, -1e-5, -1e-12])
def test_log_ndtri_is_right_where_the_probability_underflows(log_p: float) -> None:
    assert normal.log_ndtri(log_p) == pytest.approx(float(mixture.log_ndtri(torch.tensor(log_p, dtype=torch.float64))), rel=1e-9)


def test_nan_stays_nan() -> None:
    assert math.isnan(normal.log_ndtr(math.nan))
