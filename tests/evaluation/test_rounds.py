"""Costs and acceptance read off runs whose truth is known."""

import pytest

from stream_tpp.evaluation.rounds import Rounds, Runs
from stream_tpp.sampling.futures import Stats


def rounds_of(a: float, pass_cost: float, draft_cost: float) -> Rounds:
    """As a machine would show them on which a pass takes 2 ms and every drafted event stands with chance a."""
    runs = {}
    for gamma in (0, 1, 2, 4, 8):
        seconds = 2e-3 * (pass_cost + gamma * draft_cost if gamma else 1.0)
        accepted = sum(a**place for place in range(1, gamma + 1))
        rejected = round(1000 * (1 - a**gamma))
        stats = Stats(1000, 1000, 1000 * gamma, round(1000 * accepted), round(1000 * (1 + accepted)), rejected)
        runs[gamma] = Runs((seconds,) * 3, ((1 + accepted) / seconds,) * 3, stats)
    return Rounds(runs)


@pytest.mark.parametrize("a", [0.0, 0.3, 0.8, 1.0])
def test_acceptance_and_costs_are_those_that_made_the_runs(a: float) -> None:
    rounds = rounds_of(a, 1.5, 0.2)
    assert rounds.acceptance == pytest.approx(a, abs=1e-3)
    assert rounds.pass_cost == pytest.approx(1.5)
    assert rounds.draft_cost == pytest.approx(0.2)


def test_what_is_expected_is_what_was_run() -> None:
    rounds = rounds_of(0.8, 1.5, 0.2)
    for gamma in (1, 2, 4, 8):
        assert rounds.expected(gamma) == pytest.approx(rounds.speedup(gamma), rel=1e-2)


def test_the_best_length_grows_with_acceptance_and_falls_with_cost() -> None:
    assert rounds_of(0.4, 1.1, 0.25).best == 1
    assert rounds_of(0.8, 1.2, 0.1).best > rounds_of(0.8, 1.2, 0.3).best > 1
    assert rounds_of(0.9, 1.2, 0.02).best > 8


def test_no_drafting_is_best_where_a_drafted_event_costs_a_pass() -> None:
    assert rounds_of(0.99, 1.0, 1.0).best == 0
