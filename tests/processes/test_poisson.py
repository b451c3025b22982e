import numpy as np
import pytest
from scipy import integrate, stats

from stream_tpp.processes import EventSequence, SinusoidalPoisson, Window

PROCESS = SinusoidalPoisson(level=5.0, period=100.0)


def test_the_rate_is_the_papers() -> None:
    times = np.linspace(0, 100, 21)
    silence = EventSequence.empty(Window(0.0, 100.0))
    np.testing.assert_allclose(PROCESS.intensity(times, silence)[:, 0], 5 * (1 + np.sin(np.pi * times / 50)), atol=1e-12)


def test_compensator_is_the_integral_of_the_rate_from_the_windows_start() -> None:
    silence = EventSequence.empty(Window(13.0, 90.0))
    expected, _ = integrate.quad(lambda t: PROCESS.intensity(np.array([t]), silence)[0, 0], 13.0, 71.0)
    assert PROCESS.compensator(np.array([71.0]), silence)[0, 0] == pytest.approx(expected, rel=1e-9)


def test_counts_are_poisson_with_the_integral_as_their_mean() -> None:
    sequences = PROCESS.thin_rows(np.random.default_rng(1), Window(0.0, 100.0), 1000)
    first_half = np.array([(s.times <= 50).sum() for s in sequences])
    second_half = np.array([(s.times > 50).sum() for s in sequences])
    swing = 500 / np.pi
    for counts, mean in ((first_half, 250 + swing), (second_half, 250 - swing)):
        assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / 1000)
        assert counts.var() == pytest.approx(mean, rel=0.2)
    assert abs(np.corrcoef(first_half, second_half)[0, 1]) < 4 / np.sqrt(1000)


def test_rescaled_gaps_are_exponential_under_the_truth_and_not_under_a_flat_rate() -> None:
    sequences = PROCESS.thin_rows(np.random.default_rng(2), Window(0.0, 100.0), 50)
    assert stats.kstest(PROCESS.residuals(sequences), "expon").pvalue > 0.01
    flat = SinusoidalPoisson(level=5.0, period=100.0, depth=0.0)
    assert stats.kstest(flat.residuals(sequences), "expon").pvalue < 1e-10


def test_log_likelihood_against_its_closed_form() -> None:
    sequence = EventSequence(np.array([10.0, 25.0, 60.0]), np.zeros(3, dtype=np.int64), Window(0.0, 100.0))
    rates = 5 * (1 + np.sin(np.pi * sequence.times / 50))
    assert PROCESS.log_likelihood(sequence) == pytest.approx(np.log(rates).sum() - 500)
