"""The binned head's law: one law, whichever of its sides is asked, and exact in every mode of verification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from stream_tpp.evaluation.fidelity import compare
from stream_tpp.kernels.law import Law
from stream_tpp.kernels.random import uniform
from stream_tpp.kernels.verification import MODES
from stream_tpp.model.binned import BinnedHead, BinnedLaw
from stream_tpp.model.bins import Bins
from stream_tpp.sampling.plan import Plan
from tests.fidelity.toy import Toy, ToyDraft, ToyTarget
from tests.fidelity.truth import Situation, departure, history

LEVEL = 1e-4
N, K = 12, 4
PERMITTED = torch.tensor([True, False, True, True])


def observed() -> Tensor:
    """Gaps to cut bins from: a skewed law, and a tenth of them all alike."""
    y = torch.randn(4000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.cat([0.8 * y + 0.4 * y.abs(), torch.full((400,), -1.5, dtype=torch.float64)])


BINS = Bins.fit(observed(), N)


def laws(*shape: int, seed: int = 0) -> BinnedLaw:
    random = torch.Generator().manual_seed(seed)
    return BinnedLaw.from_logits(1.5 * torch.randn(*shape, len(BINS), K, generator=random), BINS)


def elapsed(y: float, *shape: int) -> Tensor:
    return torch.full(shape, y, dtype=torch.float64)


CONDITIONS: dict[str, Callable[[BinnedLaw], BinnedLaw]] = {
    "plain": lambda law: law,
    "nothing elapsed": lambda law: law.given_elapsed(elapsed(-torch.inf, *law.shape)),
    "elapsed": lambda law: law.given_elapsed(elapsed(0.2, *law.shape)),
    "elapsed to an edge": lambda law: law.given_elapsed(elapsed(float(BINS.edges[4]), *law.shape)),
    "elapsed past all data": lambda law: law.given_elapsed(elapsed(60.0, *law.shape)),
    "elapsed twice": lambda law: law.given_elapsed(elapsed(0.1, *law.shape)).given_elapsed(elapsed(0.2, *law.shape)),
    "restricted": lambda law: law.restrict(PERMITTED),
    "both": lambda law: law.given_elapsed(elapsed(0.2, *law.shape)).restrict(PERMITTED),
    "both, the other way round": lambda law: law.restrict(PERMITTED).given_elapsed(elapsed(0.2, *law.shape)),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_density_integrates_to_one(condition: str) -> None:
    """Constant between knots, so that a midpoint each is enough; finely in the tails."""
    law = CONDITIONS[condition](laws(1, seed=4))
    low = -30.0 if law.y_elapsed is None else max(-30.0, float(law.y_elapsed[0]))
    tails = [torch.linspace(start, start + 28.5, 60_001, dtype=torch.float64) for start in (-29.0, 2.0, 60.0)]
    ends = torch.cat([BINS.knots, BINS.edges, *tails, elapsed(low, 1)]).sort().values
    ends = ends[ends >= low]
    y, width = ((ends[1:] + ends[:-1]) / 2)[None], ends.diff()
    places = law.expand_tries(y.shape[1])
    assert float((places.log_prob_gap(y).exp() * width).sum()) == pytest.approx(1.0, abs=1e-5)
    each = [float((places.log_prob(y, torch.full_like(y, k, dtype=torch.int64)).exp() * width).sum()) for k in range(K)]
    np.testing.assert_allclose(each, law.types()[0].exp().numpy(), atol=1e-5)
    given = places.log_prob_gap_given_type(y, torch.zeros_like(y, dtype=torch.int64))
    assert float((given.exp() * width).sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_draws_have_the_law_that_they_are_said_to_have(condition: str) -> None:
    draws = 40_000
    law = CONDITIONS[condition](laws(1, seed=4)).expand_tries(draws)
    y, k = law.sample(uniform(torch.arange(draws), 0, 0, 3)[None])
    assert stats.kstest(law.log_survival(y)[0].exp().numpy(), "uniform").pvalue > LEVEL
    counts = torch.zeros(len(BINS), K, dtype=torch.int64)
    counts.index_put_((BINS.find(y[0]), k[0]), torch.tensor(1), accumulate=True)
    expected = law.log_tokens[0, 0].exp() * draws
    assert bool((counts[expected == 0] == 0).all())
    often = expected > 5
    statistic = float(((counts - expected)[often] ** 2 / expected[often]).sum())
    assert stats.chi2.sf(statistic, int(often.sum()) - 1) > LEVEL


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_gap_drawn_given_its_type_has_the_gaps_law_given_the_type(condition: str) -> None:
    draws = 20_000
    law = CONDITIONS[condition](laws(1, seed=4)).expand_tries(draws)
    kind = torch.full((1, draws), 2)
    y = law.sample_gap_given_type(kind, uniform(torch.arange(draws), 0, 0, 2)[None])
    counts = torch.bincount(BINS.find(y[0]), minlength=len(BINS)).numpy()
    expected = torch.softmax(law.log_tokens[0, 0, :, 2], -1).numpy() * draws
    often = expected > 5
    assert stats.chi2.sf(float(((counts - expected)[often] ** 2 / expected[often]).sum()), max(1, int(often.sum()) - 1)) > LEVEL


@pytest.mark.parametrize("condition", CONDITIONS)
def test_gap_and_type_may_be_judged_in_either_order(condition: str) -> None:
    law = CONDITIONS[condition](laws(5, 4))
    u = uniform(torch.arange(20).reshape(5, 4), 0, 0, 3)
    y, k = law.sample(u)
    assert torch.equal(law.sample_gap(u[..., :2]), y)
    own = k[..., None]
    gap_first = law.log_prob_gap(y) + law.types_given_gap(y).gather(-1, own)[..., 0]
    type_first = law.types().gather(-1, own)[..., 0] + law.log_prob_gap_given_type(y, k)
    assert bool(torch.isfinite(law.log_prob(y, k)).all())
    torch.testing.assert_close(gap_first, law.log_prob(y, k), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(type_first, law.log_prob(y, k), rtol=1e-12, atol=1e-12)


def test_an_event_is_judged_as_its_token_is() -> None:
    """What happens inside a bin is the same under target and draft."""
    p, q = laws(50, seed=1), laws(50, seed=2)
    y, k = q.sample(uniform(torch.arange(50), 0, 0, 3))
    row, j = torch.arange(50), BINS.find(y)
    tokens = p.log_tokens[row, j, k] - q.log_tokens[row, j, k]
    torch.testing.assert_close(p.log_prob(y, k) - q.log_prob(y, k), tokens, rtol=1e-12, atol=1e-12)


def test_what_is_known_to_be_over_has_no_density_and_is_survived_for_certain() -> None:
    law = laws(6).given_elapsed(elapsed(0.2, 6))
    for y in (0.1999, float(BINS.edges[0]) - 1):
        assert bool((law.log_prob_gap(elapsed(y, 6)) == -torch.inf).all())
        torch.testing.assert_close(law.log_survival(elapsed(y, 6)), elapsed(0.0, 6), rtol=0, atol=1e-14)


@pytest.mark.parametrize("y", [0.21, 1.1, 5.0, 300.0])
def test_survival_beyond_a_quiet_time_is_the_product_rule(y: float) -> None:
    law, quiet, later = laws(6), elapsed(0.2, 6), elapsed(y, 6)
    both = law.given_elapsed(quiet).log_survival(later) + law.log_survival(quiet)
    torch.testing.assert_close(both, law.log_survival(later), rtol=1e-12, atol=1e-12)


def test_suppressed_types_leave_the_gaps_law_and_their_mass_depends_on_the_gap() -> None:
    law = laws(200)
    restricted = law.restrict(PERMITTED)
    y, k = restricted.sample(uniform(torch.arange(200), 0, 0, 3))
    assert bool(PERMITTED[k].all())
    assert torch.equal(restricted.log_prob_gap(y), law.log_prob_gap(y))
    torch.testing.assert_close(restricted.log_prob(y, k) + restricted.log_permitted(y), law.log_prob(y, k))
    kept = law.types_given_gap(y).exp()[:, PERMITTED].sum(-1)
    torch.testing.assert_close(restricted.log_permitted(y).exp(), kept)
    assert float(kept.std()) > 0.1
    assert torch.equal(law.log_permitted(y), torch.zeros(200, dtype=torch.float64))


@pytest.mark.parametrize("condition", ["plain", "both"])
def test_places_keep_their_laws_however_they_are_laid_out(condition: str) -> None:
    law = CONDITIONS[condition](laws(5, 4))
    y, _ = law.sample(uniform(torch.arange(20).reshape(5, 4), 0, 0, 3))
    place, index, row = torch.tensor([3, 0, 1, 2, 0]), torch.tensor([4, 4, 1]), torch.arange(5)

    def same(other: BinnedLaw, choose: Callable[[Tensor], Tensor]) -> None:
        at = choose(y)
        assert other.shape == at.shape
        assert torch.equal(other.log_prob_gap(at), choose(law.log_prob_gap(y)))
        assert torch.equal(other.log_permitted(at), choose(law.log_permitted(y)))
        assert torch.equal(other.log_survival(at), choose(law.log_survival(y)))
        assert torch.equal(other.types()[..., 0], choose(law.types()[..., 0]))

    same(law.reshape(20), lambda t: t.reshape(20))
    same(law.reshape(2, 5, 2), lambda t: t.reshape(2, 5, 2))
    same(law.at(place), lambda t: t[row, place])
    same(law.rows(index), lambda t: t[index])
    same(law.first(2), lambda t: t[:, :2])
    same(law.at(place).expand_tries(3), lambda t: t[row, place][:, None].expand(5, 3))


def test_a_law_that_is_none_gives_no_number() -> None:
    law = BinnedLaw.from_logits(torch.full((2, len(BINS), K), torch.nan), BINS)
    y, k = law.sample(torch.full((2, 3), 0.5, dtype=torch.float64))
    assert bool(torch.isnan(y).all())
    assert bool(torch.isnan(law.log_prob(elapsed(0.1, 2), k)).all())
    assert bool(torch.isnan(laws(2).log_prob_gap(y)).all())


class Histogram(NamedTuple):
    """The truth of a BinnedToy, by interpolation of its own: chance of each token [..., N, K]."""

    tokens: Tensor

    def survival(self, y: Tensor) -> Tensor:
        """Chance of a gap above y [...]; y may be -inf."""
        cdf, ends = base_cdf(y), base_cdf(torch.tensor([-np.inf, *BINS.edges.tolist(), np.inf], dtype=torch.float64))
        share = ((ends[1:] - cdf[..., None]) / ends.diff()).clamp(0, 1)
        return (self.tokens.sum(-1) * share).sum(-1)

    def types_given_gap(self, y: Tensor) -> Tensor:
        """Probability of each type after a gap of y [...]: [..., K]."""
        j = torch.from_numpy(np.searchsorted(BINS.edges.numpy(), y.numpy(), side="right"))
        own = self.tokens.gather(-2, j[..., None, None].expand(*j.shape, 1, self.tokens.shape[-1]))[..., 0, :]
        return own / own.sum(-1, keepdim=True)


def base_cdf(y: Tensor) -> Tensor:
    """Through the knots, and exponential beyond them with the scale of the outermost tenth."""
    knots, n = BINS.knots.numpy(), len(BINS.knots)
    inside = np.interp(y.numpy(), knots, (np.arange(n) + 0.5) / n)
    scale = np.log(2 * (n // 10) + 1)
    low, high = (knots[n // 10] - knots[0]) / scale, (knots[-1] - knots[-1 - n // 10]) / scale
    below = 0.5 / n * np.exp(np.minimum((y.numpy() - knots[0]) / low, 0))
    above = 1 - 0.5 / n * np.exp(-np.maximum((y.numpy() - knots[-1]) / high, 0))
    return torch.from_numpy(np.where(y.numpy() < knots[0], below, np.where(y.numpy() > knots[-1], above, inside)))


@dataclass(frozen=True)
class BinnedToy(Toy):
    """A toy with the same memory, whose law is put into bins: a token's weight is the smooth law's in the midst of the bin."""

    permitted: Tensor | None = None

    def parts(self, state: Tensor) -> Histogram:  # type: ignore[override]
        centres = torch.cat([BINS.edges[:1] - 0.3, (BINS.edges[1:] + BINS.edges[:-1]) / 2, BINS.edges[-1:] + 0.3])
        smooth = super().parts(state[..., None, :].expand(*state.shape[:-1], len(BINS), state.shape[-1]))
        z = (centres[..., None] - smooth.locs) / smooth.scales
        density = torch.exp(smooth.log_weights - 0.5 * z * z - smooth.scales.log()).sum(-1) + 0.02
        tokens = density[..., None] * smooth.types_given_gap(centres.expand(density.shape))
        if self.permitted is not None:
            kept = tokens * self.permitted
            tokens = kept * (tokens.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True))
        return Histogram(tokens / tokens.sum((-1, -2), keepdim=True))

    def law(self, state: Tensor) -> Law:
        return BinnedLaw.from_logits(self.parts(state).tokens.log(), BINS)


TOY: BinnedToy = BinnedToy.random(1, coupled=True)
DRAFT = ToyDraft(TOY.disturbed(0.5, 7))
HISTORIES = (history([], []), history([1.0, 2.0, 0.5], [0, 1, 2]), history([3.0] * 9, [2, 2, 0, 1, 0, 0, 1, 2, 1]))
QUIET = (1.0, 9.0, 27.5)
MANY_ROWS = Plan(paths=6700, max_events=2, draft_length=3)
LONG = Plan(paths=350, max_events=20, draft_length=5)
HORIZON = Plan(paths=500, horizon=40.0, draft_length=4)
PLANS = [LONG, *(pytest.param(plan, marks=pytest.mark.slow) for plan in (MANY_ROWS, HORIZON))]


@pytest.mark.parametrize("plan", PLANS, ids=["long", "20,000 rows", "horizon"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_samples_a_target_with_memory_exactly(mode: str, plan: Plan) -> None:
    situation = Situation(HISTORIES, QUIET, replace(plan, mode=mode))
    paths = situation.paths(ToyTarget(TOY), DRAFT)
    assert len(paths.leads) >= 20_000
    assert departure(TOY, situation, paths) > LEVEL


def test_the_check_has_eyes() -> None:
    """Paths of a law nearby are told from the target's."""
    situation = Situation(HISTORIES, QUIET, LONG)
    near = TOY.disturbed(0.1, 7)
    assert departure(TOY, situation, situation.paths(ToyTarget(near), DRAFT)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_draft_with_a_mixture_for_its_law_will_do(mode: str) -> None:
    situation = Situation(HISTORIES, QUIET, replace(LONG, mode=mode))
    assert departure(TOY, situation, situation.paths(ToyTarget(TOY), ToyDraft(Toy.random(1)))) > LEVEL


@pytest.mark.parametrize("mode", ["joint", *(pytest.param(mode, marks=pytest.mark.slow) for mode in list(MODES)[1:])])
def test_suppressed_types_leave_the_restricted_law(mode: str) -> None:
    permitted = torch.tensor([True, False, True])
    situation = Situation(HISTORIES, QUIET, replace(LONG, mode=mode, permitted=permitted))
    paths = situation.paths(ToyTarget(TOY), DRAFT)
    assert set(paths.types.tolist()) == {0, 2}
    assert departure(replace(TOY, permitted=permitted), situation, paths) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_speculative_paths_are_like_those_of_direct_sampling(mode: str) -> None:
    situation = Situation(HISTORIES, QUIET, replace(LONG, mode=mode))
    plain = replace(situation, plan=replace(LONG, draft_length=0))
    found = compare(situation.paths(ToyTarget(TOY), DRAFT, 1), plain.paths(ToyTarget(TOY), DRAFT, 2), permutations=299)
    assert found.passed, found.tests


def test_a_head_learns_and_its_bins_do_not() -> None:
    head = BinnedHead(8, len(BINS), K)
    head.cut(BINS)
    law = head.law(head(torch.randn(6, 8, generator=torch.Generator().manual_seed(0))))
    y, k = torch.linspace(-2, 2, 6, dtype=torch.float64), torch.arange(6) % K
    gradients = torch.autograd.grad((law.log_prob(y, k) + law.log_survival(y)).sum(), list(head.parameters()))
    assert all(bool(torch.isfinite(gradient).all()) and bool(gradient.any()) for gradient in gradients)
    assert {name for name, _ in head.named_parameters()}.isdisjoint({"knots", "edges"})


def test_bins_travel_with_the_weights_and_keep_their_digits() -> None:
    head, hidden = BinnedHead(8, len(BINS), K), torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    head.cut(BINS)
    other = BinnedHead(8, len(BINS), K)
    other.load_state_dict(head.state_dict())
    y, k = torch.linspace(-2, 2, 3, dtype=torch.float64), torch.arange(3)
    assert torch.equal(other.law(other(hidden)).log_prob(y, k), head.law(head(hidden)).log_prob(y, k))
    other.to(torch.bfloat16)
    assert torch.equal(other.bins.knots, BINS.knots)
    assert torch.equal(other.bins.edges, BINS.edges)


def test_a_head_that_has_seen_no_data_is_a_law_over_standardised_gaps() -> None:
    head = BinnedHead(8, 50, K)
    for parameter in head.tokens[2].parameters():
        torch.nn.init.zeros_(parameter)
    law = head.law(head(torch.zeros(1, 8))).expand_tries(20_000)
    y, _ = law.sample(uniform(torch.arange(20_000), 0, 0, 3)[None])
    assert stats.kstest(y[0].detach().numpy(), "norm").pvalue > LEVEL
