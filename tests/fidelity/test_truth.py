"""The check against the truth can be trusted: right size on samples of the truth, and eyes for small departures."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from stream_tpp.sampling.plan import Plan

from .toy import Toy
from .truth import Situation, departure, directly, history, p_values, rosenblatt

HISTORIES = (history([], []), history([1.0, 2.0, 0.5], [0, 1, 2]), history([3.0] * 9, [2, 2, 0, 1, 0, 0, 1, 2, 1]))
QUIET = (1.0, 9.0, 27.5)
ENDS = {"events": Plan(paths=60, max_events=12), "horizon": Plan(paths=120, horizon=12.0)}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_samples_of_the_truth_are_rejected_as_often_as_the_level_says(end: str) -> None:
    toy, repeats = Toy.random(1, coupled=True), 50
    situation = Situation(HISTORIES, QUIET, ENDS[end])
    found = [p_values(rosenblatt(toy, situation, directly(toy, situation, seed), seed)) for seed in range(repeats)]
    for name in found[0]:
        p_value = [one[name] for one in found]
        assert stats.kstest(p_value, "uniform").pvalue > 0.0005, name
    assert sum(min(1.0, len(one) * min(one.values())) <= 0.05 for one in found) <= stats.binom.ppf(0.999, repeats, 0.05)


@pytest.mark.parametrize("end", ENDS)
def test_samples_of_a_nearby_law_are_told_from_the_truth(end: str) -> None:
    toy = Toy.random(1)
    situation = Situation(HISTORIES, QUIET, replace(ENDS[end], paths=600))
    near = replace(toy, pull=(0.6, 0.8))
    other_types = replace(toy, types_before=0.8 * toy.types_before)
    assert departure(toy, situation, directly(near, situation, 0)) < 1e-4
    assert departure(toy, situation, directly(other_types, situation, 0)) < 1e-4
    assert departure(toy, situation, directly(toy, situation, 0)) > 1e-3


def test_a_path_cut_at_the_horizon_has_no_event_past_it() -> None:
    toy = Toy.random(1)
    paths = directly(toy, Situation(HISTORIES, QUIET, ENDS["horizon"]), 0)
    assert paths.leads.max() <= 12.0
    assert (np.diff(paths.leads)[np.diff(paths.path) == 0] > 0).all()
