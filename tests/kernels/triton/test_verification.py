"""The fused kernel gives the verdict of the engine's joint mode, row by row, from the same uniform numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stream_tpp.kernels.law import MixtureLaw
from stream_tpp.kernels.random import row_keys, uniform
from stream_tpp.kernels.residual import Draws, SamplingError
from stream_tpp.kernels.verification import Verdict, joint

GAMMA = 4
Laws = tuple[MixtureLaw, MixtureLaw]


class OnCuda(Tensor):
    """A tensor that says that it is on CUDA, so that the engine takes the path of the kernels."""

    is_cuda = True


def fused(p: MixtureLaw, q: MixtureLaw, y: Tensor, k: Tensor, limits: Tensor, draws: Draws) -> Verdict:
    return joint(p, q, y.as_subclass(OnCuda), k, limits, draws)


def laws(rows: int, distance: float, components: tuple[int, int] = (5, 5), types: int = 4, seed: int = 0) -> Laws:
    """A target's law at GAMMA + 1 places of each row and a draft's at GAMMA, `distance` away."""
    random = torch.Generator().manual_seed(seed)

    def normal(last: int) -> Tensor:
        return torch.randn(rows, GAMMA + 1, last, generator=random, dtype=torch.float64)

    def drafted(t: Tensor, width: int) -> Tensor:
        return (t[:, :GAMMA, :width] if width <= t.shape[-1] else normal(width)[:, :GAMMA]) + distance

    wide, narrow = components
    raw = normal(wide), 2 * normal(wide), 0.4 * normal(wide) - 1, normal(types)
    tilt = torch.linspace(-distance, distance, types, dtype=torch.float64)
    q = [drafted(raw[0], narrow), drafted(raw[1], narrow), drafted(raw[2], narrow) - distance, raw[3][:, :GAMMA] + tilt]
    return MixtureLaw.from_logits(*raw), MixtureLaw.from_logits(*q)


def quiet(both: Laws, y: float) -> Laws:
    """The first place of each row truncated at y, as in the first round."""
    padded = [torch.full(law.shape, -torch.inf, dtype=torch.float64) for law in both]
    for at in padded:
        at[:, 0] = y
    return both[0].given_elapsed(padded[0]), both[1].given_elapsed(padded[1])


def restricted(both: Laws) -> Laws:
    permitted = torch.tensor([True, False, True, False])
    return both[0].restrict(permitted), both[1].restrict(permitted)


CASES: dict[str, Callable[[], Laws]] = {
    "near": lambda: laws(6, 0.02),
    "middling": lambda: laws(6, 0.4),
    "far": lambda: laws(4, 3.0),
    "no overlap": lambda: laws(4, 200.0),
    "a draft of fewer components": lambda: laws(6, 0.2, (7, 3)),
    "a draft of more components": lambda: laws(4, 0.2, (1, 6)),
    "one type": lambda: laws(4, 0.4, types=1),
    "many types": lambda: laws(2, 0.4, types=70),
    "quiet until now": lambda: quiet(laws(5, 0.4), 1.0),
    "quiet for very long": lambda: quiet(laws(3, 0.4), 60.0),
    "types suppressed": lambda: restricted(laws(5, 0.4)),
    "both": lambda: quiet(restricted(laws(4, 0.4)), 0.5),
}


def drafted(q: MixtureLaw, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys of the rows, and events drawn from the draft's law."""
    rows, places = q.shape
    keys = row_keys([seed], 0, rows)[0]
    y, k = q.sample(uniform(keys, 0, 0, 3 * places).reshape(rows, places, 3))
    return keys, y, k


def agrees(interpreted: Any, both: Laws, sampling_round: int, seed: int = 0) -> Verdict:
    p, q = both
    keys, y, k = drafted(q, seed)
    limits = torch.arange(len(keys)) % (GAMMA + 2)
    limits = torch.where(limits > GAMMA, 0, GAMMA - limits)
    given = p, q, y, k, limits, Draws(keys, sampling_round)
    expected, there = joint(*given), Verdict(*interpreted(fused, *given))
    assert torch.equal(there.accepted, expected.accepted)
    assert torch.equal(there.k, expected.k)
    torch.testing.assert_close(there.y, expected.y, rtol=1e-12, atol=1e-12)
    return expected


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_the_engines(interpreted: Any, case: str) -> None:
    agrees(interpreted, CASES[case](), sampling_round=len(case))


def test_the_cases_above_reject_accept_and_draw_bonuses(interpreted: Any) -> None:
    verdict = agrees(interpreted, laws(12, 0.3, seed=5), sampling_round=1)
    limits = torch.arange(12) % (GAMMA + 2)
    limits = torch.where(limits > GAMMA, 0, GAMMA - limits)
    assert bool((verdict.accepted == limits).any())
    assert bool((verdict.accepted < limits).any())
    assert bool(((verdict.accepted < limits) & (verdict.accepted > 0)).any())


def test_a_draft_equal_to_the_target_is_always_accepted(interpreted: Any) -> None:
    verdict = agrees(interpreted, laws(6, 0.0), sampling_round=2)
    assert verdict.accepted.tolist() == [4, 3, 2, 1, 0, 0]


def test_an_event_that_the_target_calls_impossible_never_stands(interpreted: Any) -> None:
    p, q = laws(4, 0.1)
    p = p.restrict(torch.tensor([True, True, True, False]))
    keys, y, k = drafted(q, 0)
    k[:, 1] = 3
    limits = torch.full((4,), GAMMA)
    accepted, _, kinds = interpreted(fused, p, q, y, k, limits, Draws(keys, 0))
    assert bool((accepted <= 1).all())
    assert bool((kinds != 3).all())


@pytest.mark.parametrize("guilty", ["target", "draft"])
def test_a_law_that_is_none_is_an_error_and_no_endless_loop(interpreted: Any, guilty: str) -> None:
    p, q = laws(2, 0.1)
    keys, y, k = drafted(q, 0)
    (p if guilty == "target" else q).locs[1] = torch.nan
    with pytest.raises(SamplingError, match="can't be sampled"):
        interpreted(fused, p, q, y, k, torch.full((2,), GAMMA), Draws(keys, 0))


@pytest.mark.slow
@pytest.mark.parametrize("distance", [0.003, 0.1, 0.5, 2.0])
def test_hundreds_of_verdicts_are_the_engines(interpreted: Any, distance: float) -> None:
    for seed in range(4):
        both = laws(30, distance, seed=100 + seed)
        agrees(interpreted, quiet(both, 0.3) if seed % 2 else both, sampling_round=seed, seed=seed)
