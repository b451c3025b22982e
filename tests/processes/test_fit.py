import numpy as np
import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.processes import EventSequence, Hawkes, Window, fit_hawkes

TRUTH = Hawkes([0.4, 0.7], [[1.0, 0.5], [0.1, 1.0]], 2.0)


def test_a_fit_recovers_the_parameters() -> None:
    fitted = fit_hawkes(TRUTH.thin_rows(np.random.default_rng(1), Window(0.0, 100.0), 200), 2)
    np.testing.assert_allclose(fitted.mu, TRUTH.mu, atol=0.05)
    np.testing.assert_allclose(fitted.alpha, TRUTH.alpha, atol=0.1)
    assert fitted.beta == pytest.approx(2.0, rel=0.06)


def test_no_nearby_process_has_a_larger_likelihood_than_the_fit() -> None:
    sequences = TRUTH.thin_rows(np.random.default_rng(2), Window(0.0, 50.0), 20)
    fitted = fit_hawkes(sequences, 2)
    best = sum(fitted.log_likelihood(s) for s in sequences)
    assert best >= sum(TRUTH.log_likelihood(s) for s in sequences)
    rng = np.random.default_rng(3)
    for _ in range(20):
        factors = np.exp(rng.normal(0, 0.1, 7))
        near = Hawkes(fitted.mu * factors[:2], fitted.alpha * factors[2:6].reshape(2, 2), fitted.beta * factors[6])
        assert sum(near.log_likelihood(s) for s in sequences) < best + 1e-6


def test_a_type_that_never_happened_keeps_a_finite_likelihood() -> None:
    sequences = TRUTH.thin_rows(np.random.default_rng(4), Window(0.0, 50.0), 5)
    fitted = fit_hawkes(sequences, 3)
    surprise = EventSequence(np.array([1.0]), np.array([2]), Window(0.0, 2.0))
    assert fitted.mu[2] == pytest.approx(0.5 / 250)
    assert np.isfinite(fitted.log_likelihood(surprise))


def test_ties_do_not_make_the_fit_run_away() -> None:
    times = np.repeat(np.arange(1.0, 50.0), 2)
    fitted = fit_hawkes([EventSequence(times, np.zeros(len(times), dtype=np.int64), Window(0.0, 50.0))], 1)
    assert fitted.beta < 10
    assert fitted.branching_ratio < 1


def test_a_single_event_can_be_fitted() -> None:
    fitted = fit_hawkes([EventSequence(np.array([1.0]), np.array([0]), Window(0.0, 4.0))], 1)
    assert fitted.mu[0] == pytest.approx(0.25, rel=0.01)


def test_nothing_to_fit_is_said_in_a_sentence() -> None:
    with pytest.raises(StreamTppError, match="no events"):
        fit_hawkes([EventSequence.empty(Window(0.0, 1.0))], 2)
    with pytest.raises(StreamTppError, match=r"outside 0\.\.0"):
        fit_hawkes([EventSequence(np.array([1.0]), np.array([1]), Window(0.0, 4.0))], 1)
