"""The law of the next event: one law, whichever of its sides is asked."""

from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor

from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.kernels.random import uniform

LEVEL = 1e-4
SCALE = GapScale(log_mean=1.3, log_std=2.1, floor=1e-9)
PERMITTED = torch.tensor([True, False, True, True])


def laws(*shape: int, seed: int = 0) -> MixtureLaw:
    random = torch.Generator().manual_seed(seed)

    def normal(last: int) -> Tensor:
        return torch.randn(*shape, last, generator=random)

    return MixtureLaw.from_logits(normal(3), normal(3), 0.5 * normal(3) - 0.5, normal(4))


def elapsed(y: float, *shape: int) -> Tensor:
    return torch.full(shape, y, dtype=torch.float64)


CONDITIONS: dict[str, Callable[[MixtureLaw], MixtureLaw]] = {
    "plain": lambda law: law,
    "nothing elapsed": lambda law: law.given_elapsed(elapsed(-torch.inf, *law.shape)),
    "elapsed": lambda law: law.given_elapsed(elapsed(0.2, *law.shape)),
    "long elapsed": lambda law: law.given_elapsed(elapsed(40.0, *law.shape)),
    "restricted": lambda law: law.restrict(PERMITTED),
    "both": lambda law: law.given_elapsed(elapsed(0.2, *law.shape)).restrict(PERMITTED),
    "both, the other way round": lambda law: law.restrict(PERMITTED).given_elapsed(elapsed(0.2, *law.shape)),
}


def grid(law: MixtureLaw, cells: int = 20_000) -> tuple[Tensor, float]:
    """Midpoints of cells that hold nearly all of a law's mass, and their width."""
    y_low = -12.0 if law.y_elapsed is None else max(-12.0, float(law.y_elapsed.min()))
    width = (12.0 - y_low if y_low < 10 else 8.0) / cells
    return y_low + width * (torch.arange(cells, dtype=torch.float64) + 0.5), width


@pytest.mark.parametrize("gap", [1e-9, 1e-6, 0.01, 1.0, 86_400.0, 1e9])
def test_gaps_from_a_billionth_to_a_billion_seconds_come_back_as_they_were(gap: float) -> None:
    seconds = torch.tensor(gap, dtype=torch.float64)
    assert SCALE.to_gap(SCALE.to_y(seconds)).item() == pytest.approx(gap, rel=1e-13)


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-9])
def test_events_that_share_a_time_are_the_floor_apart(gap: float) -> None:
    y = SCALE.to_y(torch.tensor([gap, SCALE.floor], dtype=torch.float64))
    assert bool(torch.isfinite(y).all())
    assert y[0] == y[1]


def test_a_quiet_time_of_a_tie_or_less_tells_nothing() -> None:
    y = SCALE.elapsed_to_y(torch.tensor([0.0, 1e-9, 2e-9, 5.0], dtype=torch.float64))
    assert y[:2].tolist() == [-torch.inf, -torch.inf]
    torch.testing.assert_close(y[2:], SCALE.to_y(torch.tensor([2e-9, 5.0], dtype=torch.float64)))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_density_integrates_to_one(condition: str) -> None:
    law = CONDITIONS[condition](laws(1, seed=4))
    y, width = grid(law)
    places = law.expand_tries(len(y))
    mass = sum(places.log_prob(y[None], torch.full((1, len(y)), k)).exp().sum() * width for k in range(4))
    assert float(mass) == pytest.approx(1.0, abs=2e-3)
    assert float(places.log_prob_gap(y[None]).exp().sum() * width) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_draws_have_the_law_that_they_are_said_to_have(condition: str) -> None:
    draws = 40_000
    law = CONDITIONS[condition](laws(1, seed=4)).expand_tries(draws)
    y, k = law.sample(uniform(torch.arange(draws), 0, 0, 3)[None])
    assert stats.kstest(law.log_survival(y)[0].exp().numpy(), "uniform").pvalue > LEVEL
    expected = law.types()[0, 0].exp() * draws
    counts = torch.bincount(k[0], minlength=4)
    assert bool((counts[expected == 0] == 0).all())
    possible = expected > 0
    assert stats.chisquare(counts[possible].numpy(), expected[possible].numpy()).pvalue > LEVEL
    early = y[0] < y[0].median()
    table = torch.stack([torch.bincount(k[0][early], minlength=4), torch.bincount(k[0][~early], minlength=4)])[:, possible]
    assert stats.chi2_contingency(table.numpy()).pvalue > LEVEL


@pytest.mark.parametrize("condition", CONDITIONS)
def test_gap_and_type_may_be_drawn_and_judged_in_either_order(condition: str) -> None:
    law = CONDITIONS[condition](laws(5, 4))
    u = uniform(torch.arange(20).reshape(5, 4), 0, 0, 3)
    y, k = law.sample(u)
    assert torch.equal(law.sample_gap(u[..., :2]), y)
    assert torch.equal(law.sample_gap_given_type(k, u[..., :2]), y)
    own = k[..., None]
    gap_first = law.log_prob_gap(y) + law.types_given_gap(y).gather(-1, own)[..., 0]
    type_first = law.types().gather(-1, own)[..., 0] + law.log_prob_gap_given_type(y, k)
    torch.testing.assert_close(gap_first, law.log_prob(y, k), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(type_first, law.log_prob(y, k), rtol=1e-12, atol=1e-12)


def test_what_is_known_to_be_over_has_no_density_and_is_survived_for_certain() -> None:
    law = laws(6).given_elapsed(elapsed(0.2, 6))
    before = elapsed(0.1, 6)
    assert bool((law.log_prob_gap(before) == -torch.inf).all())
    assert bool((law.log_survival(before) == 0.0).all())


def test_survival_beyond_a_quiet_time_is_the_product_rule() -> None:
    law, y = laws(6), elapsed(1.1, 6)
    quiet = elapsed(0.2, 6)
    torch.testing.assert_close(
        law.given_elapsed(quiet).log_survival(y) + law.log_survival(quiet), law.log_survival(y), rtol=1e-12, atol=1e-12
    )


def test_suppressed_types_lend_their_mass_to_the_others_and_it_is_known_how_much() -> None:
    law, y = laws(6), elapsed(0.4, 6)
    restricted = law.restrict(PERMITTED)
    kept = law.types().exp()[:, PERMITTED]
    torch.testing.assert_close(restricted.log_permitted(y).exp(), kept.sum(-1))
    torch.testing.assert_close(restricted.types().exp()[:, PERMITTED], kept / kept.sum(-1, keepdim=True))
    assert bool((restricted.types()[:, ~PERMITTED] == -torch.inf).all())
    assert torch.equal(restricted.log_prob_gap(y), law.log_prob_gap(y))
    assert torch.equal(law.log_permitted(y), torch.zeros(6, dtype=torch.float64))


def test_restricting_to_a_type_of_hardly_any_mass_is_still_a_law() -> None:
    law = MixtureLaw.from_logits(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([[0.0, -900.0]]))
    restricted = law.restrict(torch.tensor([False, True]))
    assert restricted.log_permitted(elapsed(0.0, 1)).item() == pytest.approx(-900.0)
    assert restricted.types()[0].tolist() == [-torch.inf, 0.0]


@pytest.mark.parametrize("condition", ["plain", "both"])
def test_places_keep_their_laws_however_they_are_laid_out(condition: str) -> None:
    law = CONDITIONS[condition](laws(5, 4))
    y = laws(5, 4, seed=1).locs[..., 0]
    density, mass = law.log_prob_gap(y), law.log_permitted(y)
    place, index = torch.tensor([3, 0, 1, 2, 0]), torch.tensor([4, 4, 1])
    row = torch.arange(5)

    def same(other: MixtureLaw, choose: Callable[[Tensor], Tensor]) -> None:
        at = choose(y)
        assert other.shape == at.shape
        assert torch.equal(other.log_prob_gap(at), choose(density))
        assert torch.equal(other.log_permitted(at), choose(mass))
        assert torch.equal(other.types()[..., 0], choose(law.types()[..., 0]))

    same(law.reshape(20), lambda t: t.reshape(20))
    same(law.reshape(2, 5, 2), lambda t: t.reshape(2, 5, 2))
    same(law.at(place), lambda t: t[row, place])
    same(law.rows(index), lambda t: t[index])
    same(law.first(2), lambda t: t[:, :2])
    same(law.at(place).expand_tries(3), lambda t: t[row, place][:, None].expand(5, 3))


def test_raw_outputs_of_any_float_type_are_normalised_in_float64() -> None:
    raw = [torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16) for _ in range(4)]
    law = MixtureLaw.from_logits(*raw)
    for log_probabilities in (law.log_weights, law.log_types):
        assert log_probabilities.dtype == torch.float64
        torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-14)
