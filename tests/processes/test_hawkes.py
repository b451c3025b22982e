import numpy as np
import pytest
from scipy import integrate, stats

from stream_tpp.errors import StreamTppError
from stream_tpp.processes import EventSequence, Hawkes, Window
from stream_tpp.processes.hawkes import decayed_sums

TWO_TYPES = Hawkes([0.4, 0.7], [[1.0, 0.5], [0.1, 1.0]], 2.0)


def sequence_of(process: Hawkes, seed: int, end: float = 20.0) -> EventSequence:
    return process.thin(np.random.default_rng(seed), Window(0.0, end))


def intensity_by_definition(process: Hawkes, time: float, history: EventSequence) -> np.ndarray:
    rates = process.mu.copy()
    for event, kind in zip(history.times, history.types, strict=True):
        if event < time:
            rates += process.alpha[:, kind] * np.exp(-process.beta * (time - event))
    return rates


def test_intensity_is_the_sum_over_the_history_that_the_definition_says() -> None:
    history = sequence_of(TWO_TYPES, seed=1)
    times = np.sort(np.concatenate([np.linspace(0, 20, 41), history.times]))
    expected = np.array([intensity_by_definition(TWO_TYPES, time, history) for time in times])
    np.testing.assert_allclose(TWO_TYPES.intensity(times, history), expected, rtol=1e-12)


def test_an_event_of_one_type_excites_the_types_in_its_column() -> None:
    process = Hawkes([1.0, 1.0], [[0.0, 3.0], [0.0, 0.0]], 1.0)
    after_type_1 = EventSequence(np.array([1.0]), np.array([1]), Window(0.0, 2.0))
    np.testing.assert_allclose(process.intensity(np.array([2.0]), after_type_1), [[1 + 3 * np.exp(-1), 1.0]])


def test_compensator_is_the_integral_of_the_intensity() -> None:
    history = sequence_of(TWO_TYPES, seed=2)
    for end in (3.0, 11.5, 20.0):
        for kind in range(2):
            expected, _ = integrate.quad(
                lambda t, k=kind: TWO_TYPES.intensity(np.array([t]), history)[0, k],
                0.0,
                end,
                points=history.times[history.times < end],
                limit=500,
            )
            assert TWO_TYPES.compensator(np.array([end]), history)[0, kind] == pytest.approx(expected, rel=1e-6)


def test_log_likelihood_is_log_intensities_at_events_less_the_numeric_integral() -> None:
    sequence = sequence_of(TWO_TYPES, seed=3, end=10.0)
    grid = np.linspace(0, 10, 2_000_001)
    integral = TWO_TYPES.intensity(grid, sequence).sum(1).mean() * 10
    at_events = [
        intensity_by_definition(TWO_TYPES, time, sequence)[kind]
        for time, kind in zip(sequence.times, sequence.types, strict=True)
    ]
    assert TWO_TYPES.log_likelihood(sequence) == pytest.approx(np.log(at_events).sum() - integral, abs=1e-4)


def test_log_likelihoods_of_consecutive_windows_add_up() -> None:
    sequence = sequence_of(TWO_TYPES, seed=4)
    parts = [TWO_TYPES.log_likelihood(sequence, Window(a, b)) for a, b in ((0.0, 7.0), (7.0, 13.0), (13.0, 20.0))]
    assert sum(parts) == pytest.approx(TWO_TYPES.log_likelihood(sequence), rel=1e-12)


def test_tied_events_do_not_excite_each_other() -> None:
    tied = EventSequence(np.array([1.0, 1.0]), np.array([0, 0]), Window(0.0, 2.0))
    process = Hawkes(0.5, 1.0, 1.0)
    np.testing.assert_allclose(process.intensity(tied.times, tied), [[0.5], [0.5]])


def test_an_empty_sequence_has_the_likelihood_of_silence() -> None:
    assert TWO_TYPES.log_likelihood(EventSequence.empty(Window(3.0, 8.0))) == pytest.approx(-5 * 1.1)


def test_mean_counts_are_the_stationary_rates_less_the_missing_past() -> None:
    process, window = Hawkes(2.5, 1.0, 2.0), Window(0.0, 100.0)
    np.testing.assert_allclose(process.mean_rates, [5.0])
    counts = np.array([len(s) for s in process.thin_rows(np.random.default_rng(5), window, 1000)])
    # Starting from silence the mean rate is mu (2 - exp(-t)) for alpha 1, beta 2.
    expected = 2.5 * (2 * 100 - 1)
    assert abs(counts.mean() - expected) < 4 * counts.std() / np.sqrt(1000)
    # A branching ratio of 1/2 makes counts (1 - 1/2)^-2 = 4 times as variable as a Poisson process of the same rate.
    assert counts.var() == pytest.approx(4 * 500, rel=0.2)


@pytest.mark.parametrize("kind", [None, 0, 1])
def test_rescaled_gaps_are_exponential_under_the_truth(kind: int | None) -> None:
    sequences = TWO_TYPES.thin_rows(np.random.default_rng(6), Window(0.0, 100.0), 100)
    assert stats.kstest(TWO_TYPES.residuals(sequences, kind), "expon").pvalue > 0.01


@pytest.mark.parametrize(
    "wrong",
    [Hawkes([0.4, 0.7], [[0.8, 0.5], [0.1, 1.0]], 2.0), Hawkes([0.5, 0.7], [[1.0, 0.5], [0.1, 1.0]], 2.2)],
    ids=["excites less", "forgets faster"],
)
def test_rescaled_gaps_tell_a_nearby_process_from_the_truth(wrong: Hawkes) -> None:
    sequences = TWO_TYPES.thin_rows(np.random.default_rng(7), Window(0.0, 100.0), 100)
    assert stats.kstest(wrong.residuals(sequences), "expon").pvalue < 0.001


def test_rescaled_gaps_of_short_windows_are_exponential_too() -> None:
    """Windows of about two events: dropping each censored last gap would shift the law by far more than noise."""
    sequences = TWO_TYPES.thin_rows(np.random.default_rng(8), Window(0.0, 1.5), 4000)
    assert stats.kstest(TWO_TYPES.residuals(sequences), "expon").pvalue > 0.01
    censored = np.concatenate([TWO_TYPES.residuals([sequence]) for sequence in sequences])
    assert stats.kstest(censored, "expon").pvalue < 1e-10


def test_thinning_goes_on_from_a_history() -> None:
    window = Window(5.0, 5.2)
    burst = EventSequence(np.linspace(4.9, 5.0, 20), np.zeros(20, dtype=np.int64), Window(0.0, 5.0))
    counts = [len(s) for s in TWO_TYPES.thin_rows(np.random.default_rng(9), window, 4000, burst)]
    # Conditional mean by the linear equation of the mean intensity, solved with small steps.
    rates, step = TWO_TYPES.intensity(np.array([np.nextafter(5.0, 6.0)]), burst)[0], 1e-4
    expected, level = 0.0, rates.copy()
    for _ in range(2000):
        expected += level.sum() * step
        level = level + step * (TWO_TYPES.beta * (TWO_TYPES.mu - level) + TWO_TYPES.alpha @ level)
    assert abs(np.mean(counts) - expected) < 4 * np.std(counts) / np.sqrt(4000)


def test_an_explosive_process_has_no_stationary_rate() -> None:
    with pytest.raises(StreamTppError, match=r"branching ratio is 1\.5"):
        _ = Hawkes(1.0, 3.0, 2.0).mean_rates


def test_decayed_sums_are_the_recursion() -> None:
    rng = np.random.default_rng(10)
    times, values = np.sort(rng.uniform(0, 30, 200)), rng.random((200, 3))
    starts = rng.random(200) < 0.05
    starts[0] = True
    expected, state = np.empty_like(values), np.zeros(3)
    for n in range(200):
        state = values[n] + (0 if starts[n] else np.exp(-0.7 * (times[n] - times[n - 1]))) * state
        expected[n] = state
    np.testing.assert_allclose(decayed_sums(values, times, starts, 0.7), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("mu", "alpha", "beta"),
    [([1.0, 1.0], [[1.0]], 1.0), ([-1.0], [[1.0]], 1.0), ([1.0], [[np.nan]], 1.0), ([1.0], [[1.0]], 0.0)],
)
def test_parameters_that_are_no_process_are_refused(mu: list[float], alpha: list[list[float]], beta: float) -> None:
    with pytest.raises(StreamTppError):
        Hawkes(mu, alpha, beta)
