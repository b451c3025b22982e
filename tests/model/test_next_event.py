"""What a user is told of the next event agrees with itself, with integrals of it, and with what is sampled."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.bins import Bins
from stream_tpp.model.next_event import NextEvent

from .test_model import HISTORIES, model

SCALE = GapScale(2.0, 0.8, 1e-9)
QUIET = [0.0, 5.0, 900.0]
LEVELS = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)


def mixture() -> Law:
    random = torch.Generator().manual_seed(0)
    weights, locs, log_scales = torch.randn(3, 3, 4, generator=random)
    return MixtureLaw.from_logits(weights, locs, 0.3 * log_scales - 0.7, torch.randn(3, 3, generator=random))


def over_bins(spacing: str = "quantile") -> Law:
    random = torch.Generator().manual_seed(1)
    bins = Bins.fit(torch.randn(5000, generator=random, dtype=torch.float64), 15, spacing)  # type: ignore[arg-type]
    return BinnedLaw.from_logits(torch.randn(3, 15, 3, generator=random), bins)


LAWS = {"mixture": mixture, "binned": over_bins, "binned by width": lambda: over_bins("width")}
every_law = pytest.mark.parametrize("law", LAWS)


def following(law: Law, quiet: list[float], scale: GapScale = SCALE) -> NextEvent:
    seconds = torch.tensor(quiet, dtype=torch.float64)
    return NextEvent(law.given_elapsed(scale.elapsed_to_y(seconds)), scale, seconds)


def grid() -> tuple[Tensor, np.ndarray]:
    """Seconds from 1e-12 to 1e12, and their logs."""
    logs = np.linspace(-27.6, 27.6, 120_001)
    return torch.from_numpy(np.exp(logs)), logs


@every_law
def test_density_survival_and_intensity_are_of_one_law(law: str) -> None:
    off = 2e-4 if law == "mixture" else 1e-2  # of the trapezoids: a density over bins jumps a thousand times
    event, (seconds, logs) = following(LAWS[law](), QUIET), grid()
    density, survival = event.density(seconds).numpy(), event.survival(seconds).numpy()
    came = integrate.cumulative_trapezoid(density * seconds.numpy(), logs, initial=0.0)
    np.testing.assert_allclose(came, 1 - survival, rtol=0, atol=off)
    intensity = event.intensity(seconds).numpy()
    hazard = integrate.cumulative_trapezoid(intensity.sum(-1) * seconds.numpy(), logs, initial=0.0)
    np.testing.assert_allclose(hazard, -event.log_survival(seconds).numpy(), rtol=2 * off, atol=off)
    of_type = integrate.trapezoid(intensity * survival[..., None] * seconds.numpy()[:, None], logs, axis=1)
    np.testing.assert_allclose(of_type, event.types().numpy(), atol=off)


@every_law
def test_the_mean_is_the_integral_of_the_survival(law: str) -> None:
    event, (seconds, logs) = following(LAWS[law](), QUIET), grid()
    integral = integrate.trapezoid(event.survival(seconds).numpy() * seconds.numpy(), logs)
    np.testing.assert_allclose(event.mean().numpy(), integral, rtol=1e-3)
    np.testing.assert_allclose(event.log_mean().exp().numpy(), integral, rtol=1e-3)


@every_law
def test_quantiles_invert_the_survival(law: str) -> None:
    event = following(LAWS[law](), QUIET)
    found = event.quantile(LEVELS)
    for level, seconds in enumerate(found.T):
        torch.testing.assert_close(event.survival(seconds).diagonal(), (1 - LEVELS[level]).expand(3), rtol=1e-9, atol=1e-9)
    assert torch.equal(event.median(), found[:, 1])


@every_law
def test_now_is_certain_to_be_reached(law: str) -> None:
    event = following(LAWS[law](), QUIET)
    assert torch.equal(event.survival(torch.zeros(1)), torch.ones(3, 1, dtype=torch.float64))
    assert bool(torch.isfinite(event.intensity(torch.zeros(1))).all())


@every_law
def test_a_long_silence_after_regular_gaps_has_quantiles(law: str) -> None:
    """Gaps that differ by a thousandth, and a thousand of them without an event: y is near 7000."""
    event = following(LAWS[law](), [7e3] * 3, GapScale(2.0, 1e-3, 1e-9))
    found = event.quantile(LEVELS)
    assert bool((found > 0).all())
    assert bool((found.diff(dim=-1) > 0).all())
    for level, seconds in enumerate(found.T):
        torch.testing.assert_close(event.survival(seconds).diagonal(), (1 - LEVELS[level]).expand(3), rtol=0, atol=1e-3)


def test_a_mean_that_no_number_can_hold_is_inf_and_its_log_and_the_median_are_not() -> None:
    law = MixtureLaw.from_logits(torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1, 1), 3.0), torch.zeros(1, 1))
    event = following(law, [0.0], GapScale(2.0, 3.0, 1e-9))
    assert float(event.mean()) == math.inf
    assert float(event.log_mean()) == pytest.approx(2.0 + 0.5 * (3.0 * math.exp(3.0)) ** 2)
    assert float(event.median()) == pytest.approx(math.exp(2.0))


def test_a_tail_too_heavy_for_a_mean_has_none_and_says_so() -> None:
    law = over_bins()
    assert bool((following(law, QUIET, GapScale(2.0, 5.0, 1e-9)).log_mean() == math.inf).all())
    assert bool(torch.isfinite(following(law, QUIET, GapScale(2.0, 0.5, 1e-9)).mean()).all())


def test_what_is_no_time_and_no_level_is_refused() -> None:
    event = following(mixture(), QUIET)
    for seconds in (-1.0, math.nan):
        with pytest.raises(StreamTppError, match="after now"):
            event.survival(torch.tensor([seconds]))
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(StreamTppError, match="levels"):
            event.quantile(torch.tensor([level], dtype=torch.float64))


def test_sampled_futures_begin_as_the_next_event_says() -> None:
    now, paths = [6.0, 9.0, 9.0], 20_000
    event = model().next_event(HISTORIES, now=now)
    futures = model().sample(HISTORIES, now=now, max_events=1, paths=paths, seed=3)
    for level, seconds in zip(LEVELS.tolist(), event.quantile(LEVELS).T, strict=True):
        came = (futures.leads[:, :, 0] <= seconds[:, None]).double().mean(1)
        assert float((came - level).abs().max()) < 4 * math.sqrt(level * (1 - level) / paths)
    shares = torch.stack([(futures.types[:, :, 0] == k).double().mean(1) for k in range(3)], -1)
    assert float((shares - event.types()).abs().max()) < 0.015
    assert float(event.quiet[2]) == 0.0  # never seen: observed since now


def test_a_history_without_events_was_quiet_since_its_start() -> None:
    one = model().next_event([History(start=2.0), History(start=2.0)], now=[2.0, 12.0])
    assert one.quiet.tolist() == [0.0, 10.0]
    at = torch.tensor([1.0, 10.0, 11.0])
    fresh = one.survival(at)[0]
    assert float(one.survival(at)[1, 0]) == pytest.approx(float(fresh[2] / fresh[1]), rel=1e-5)


def test_quantiles_invert_the_survival_also_after_quiet_time() -> None:
    law = MixtureLaw.from_logits(
        torch.tensor([[0.3, -0.2], [0.0, 1.0]]), torch.tensor([[0.0, 2.0], [-5.0, 1.0]]), torch.zeros(2, 2), torch.zeros(2, 3)
    ).given_elapsed(torch.tensor([-torch.inf, 4.0], dtype=torch.float64))
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    survival = law.expand_tries(3).log_survival(law.quantile(levels)).exp()
    assert torch.allclose(1 - survival, levels.expand(2, 3), atol=1e-9)
