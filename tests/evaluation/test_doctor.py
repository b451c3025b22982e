"""Each cause of trouble, planted by itself, is found and named; a healthy model raises no alarm."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.doctor import (
    Examination,
    Finding,
    check_acceptance,
    check_bins,
    check_draft,
    check_draft_cost,
    check_draft_length,
    check_speed,
    check_verification,
    examine,
)
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, MixtureLaw
from stream_tpp.logs import read_log
from stream_tpp.logs.histories import gather_histories
from stream_tpp.model.checkpoint import load
from stream_tpp.model.config import DraftConfig, DraftName, ModelConfig, TargetConfig
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.heads import MixtureHead
from stream_tpp.model.model import Model
from stream_tpp.pretrained import FLIGHTS
from tests.evaluation.test_rounds import rounds_of

LEARNED = ("anchored", "lstm", "transformer", "moe", "early-exit")
FEW = Examination(prompts=2)


@pytest.fixture(scope="module")
def flights() -> list[Event]:
    return list(itertools.islice(read_log("flights"), 3000))


@pytest.fixture
def healthy() -> Model:
    return load(FLIGHTS)


def findings(model: Model, events: Iterable[Event], how: Examination = FEW) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(model, events, how, lambda amount: None)}


def alarmed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.verdict != "ok"}


def some_histories(model: Model, events: Iterable[Event]) -> list[History]:
    return list(gather_histories(events, model.types).histories.values())[:16]


def with_draft(model: Model, kind: DraftName) -> Model:
    """The same target with a draft that was never trained."""
    config = replace(model.config, draft=replace(model.config.draft, kind=kind))
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return replace(model, config=config, draft=build_draft(config, model.target, model.scale).eval())


def test_a_healthy_model_raises_no_alarm(healthy: Model, flights: list[Event]) -> None:
    found = findings(healthy, flights, Examination())
    assert not alarmed(found), found
    assert not any(finding.advice for finding in found.values())
    assert {"weights", "types", "time_unit", "density", "draft", "acceptance", "draft_cost", "speed"} <= set(found)


@pytest.mark.parametrize("kind", LEARNED)
def test_an_untrained_draft_is_found(healthy: Model, flights: list[Event], kind: DraftName) -> None:
    found = check_draft(with_draft(healthy, kind), some_histories(healthy, flights))
    assert found.verdict == "fault"
    assert "learned nothing" in found.advice


def test_an_untrained_draft_is_seen_in_its_acceptance_too(healthy: Model, flights: list[Event]) -> None:
    found = findings(with_draft(healthy, "anchored"), flights)
    assert {"draft", "acceptance"} <= alarmed(found)
    assert not alarmed(found) & {"weights", "types", "time_unit", "density"}


def test_a_draft_without_weights_is_not_called_untrained(healthy: Model, flights: list[Event]) -> None:
    assert check_draft(with_draft(healthy, "poisson"), some_histories(healthy, flights)).verdict == "ok"


def test_a_log_unlike_the_one_that_the_draft_learned_from_is_found(healthy: Model, flights: list[Event]) -> None:
    for parameter in healthy.draft.parameters():
        parameter.data *= 0.8
    found = check_draft(healthy, some_histories(healthy, flights))
    assert found.verdict == "warning"
    assert "87% when it was fitted" in found.advice


def test_a_draft_length_far_too_long_is_found_and_a_shorter_one_named(healthy: Model, flights: list[Event]) -> None:
    found = findings(with_draft(healthy, "lstm"), flights, replace(FEW, draft_length=16))["draft_length"]
    assert (found.verdict, found.value) == ("warning", 16)
    assert "too many" in found.advice
    assert int(found.advice.rstrip(".").rpartition("--draft-length ")[2]) <= 4


def test_a_draft_as_slow_as_the_target_is_found(flights: list[Event]) -> None:
    config = ModelConfig(TargetConfig(4, layers=1), DraftConfig("transformer", layers=6))
    scale = load(FLIGHTS).scale
    slow = Model.fresh(config, ("cancelled", "late", "on_time", "very_late"), scale, 64)
    found = findings(slow, flights)
    assert found["draft_cost"].verdict == "fault"
    assert found["draft_cost"].value > 1
    assert "smaller draft" in found["draft_cost"].advice
    assert found["speed"].verdict == "warning"


def test_weights_that_are_nan_are_found_and_named(healthy: Model, flights: list[Event]) -> None:
    with torch.no_grad():
        healthy.target.head.locs.bias[3] = torch.nan
    found = findings(healthy, flights)
    assert (found["weights"].verdict, found["weights"].value) == ("fault", 1)
    assert "target's head.locs.bias" in found["weights"].advice
    assert "speed" not in found


@pytest.mark.parametrize("part", ["target", "draft"])
def test_weights_so_large_that_no_law_comes_out_are_found(healthy: Model, flights: list[Event], part: str) -> None:
    with torch.no_grad():
        getattr(healthy, part).head.slices.weight.fill_(1e38)
    found = findings(healthy, flights)
    assert found["weights"].verdict == "ok"
    assert found["density"].verdict == "fault"
    assert part in found["density"].advice
    assert "speed" not in found


class Unnormalised(MixtureHead):
    """Forgets the softmax over the weights of its components."""

    def law(self, raw: Tensor) -> MixtureLaw:
        return replace(super().law(raw), log_weights=raw[..., : self.sizes[0]].to(torch.float64))


@pytest.mark.parametrize("part", ["target", "draft"])
def test_an_unnormalised_head_is_found(healthy: Model, flights: list[Event], part: str) -> None:
    getattr(healthy, part).head.__class__ = Unnormalised
    found = findings(healthy, flights)["density"]
    assert found.verdict == "fault"
    assert part in found.advice
    assert "integrates to something else than 1" in found.advice


@pytest.mark.parametrize(
    ("factor", "advice"),
    [(1e6, "--time-unit us"), (1e3, "--time-unit ms"), (1e-6, "--time-unit s"), (1 / 86_400, "in days")],
)
def test_a_log_in_another_unit_of_time_is_found(healthy: Model, flights: list[Event], factor: float, advice: str) -> None:
    begins = min(event.time for event in flights)
    scaled = [replace(event, time=(event.time - begins) * factor) for event in flights]
    found = findings(healthy, scaled)["time_unit"]
    assert found.verdict == "fault"
    assert advice in found.advice


def test_ties_are_no_other_unit_of_time() -> None:
    events = [Event("a", float(number // 2), "x") for number in range(200)]
    scale = GapScale(-10.0, 10.4, 1e-9)  # of half of the gaps 1 s and half of them ties
    config = ModelConfig(TargetConfig(1, layers=1, d_model=8, heads=2), DraftConfig(d_model=8))
    assert findings(Model.fresh(config, ("x",), scale, 16), events)["time_unit"].verdict == "ok"


def binned(bins: int, disagreement: float) -> Model:
    """Target and draft over bins that agree but for what each got wrong of every token by itself."""
    config = ModelConfig(TargetConfig(4, layers=1, d_model=8, heads=2, head="binned", bins=bins), DraftConfig("lstm", d_model=8))
    model = Model.fresh(config, ("cancelled", "late", "on_time", "very_late"), load(FLIGHTS).scale, 64)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for network in (model.target, model.draft):
            last = network.head.tokens[-1]
            last.weight.zero_()
            last.bias.copy_(disagreement * torch.randn(last.bias.shape, generator=generator))
    return model


def test_bins_too_fine_for_the_networks_to_agree_on_are_found(flights: list[Event]) -> None:
    model = binned(200, disagreement=1.0)
    found = check_bins(model, some_histories(model, flights))
    assert found.verdict == "warning"
    assert found.value > 0.1
    assert "--bins 50" in found.advice


def test_bins_that_the_networks_agree_on_raise_no_alarm(flights: list[Event]) -> None:
    model = binned(200, disagreement=0.1)
    assert check_bins(model, some_histories(model, flights)).verdict == "ok"


def test_a_binned_model_is_examined_from_end_to_end(flights: list[Event]) -> None:
    found = findings(binned(60, disagreement=0.1), flights)
    assert not alarmed(found) & {"weights", "types", "time_unit", "density", "bins", "draft", "acceptance"}
    assert {"bins", "speed"} <= set(found)


def test_types_that_the_model_does_not_know_are_found_and_named(healthy: Model, flights: list[Event]) -> None:
    some = [replace(event, type="diverted") if place % 5 == 0 else event for place, event in enumerate(flights)]
    found = findings(healthy, some)["types"]
    assert (found.verdict, found.value) == ("warning", pytest.approx(0.2, abs=1e-3))
    assert "'diverted'" in found.advice


def test_a_log_of_unknown_types_alone_ends_the_examination(healthy: Model, flights: list[Event]) -> None:
    found = findings(healthy, [replace(event, type=event.entity) for event in flights])
    assert found["types"].verdict == "fault"
    assert "--type" in found["types"].advice
    assert "density" not in found


def test_an_empty_log_is_a_fault(healthy: Model) -> None:
    assert findings(healthy, [])["types"].advice.startswith("The log holds no events")


def test_a_log_that_cannot_be_read_is_an_error_of_its_own(healthy: Model, tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match="no log file"):
        findings(healthy, read_log(tmp_path / "none.csv"))


def test_what_pays_raises_no_alarm() -> None:
    rounds = rounds_of(0.85, 1.6, 0.3)
    model = load(FLIGHTS)
    found = [check_acceptance(rounds), check_draft_cost(rounds), check_verification(rounds), check_speed(model, rounds, 4)]
    assert {finding.verdict for finding in [*found, check_draft_length(rounds, 4)]} == {"ok"}


def test_each_cost_is_accused_alone() -> None:
    assert check_draft_cost(rounds_of(0.99, 1.0, 1.1)).verdict == "fault"
    assert check_verification(rounds_of(0.99, 1.0, 1.1)).verdict == "ok"
    assert check_verification(rounds_of(0.99, 6.0, 0.1)).verdict == "warning"
    assert check_draft_cost(rounds_of(0.99, 6.0, 0.1)).verdict == "ok"


def test_a_sampler_that_does_not_pay_is_told_what_does() -> None:
    found = check_speed(load(FLIGHTS), rounds_of(0.3, 1.5, 0.4), 8)
    assert found.verdict == "warning"
    assert found.advice.endswith("Until then use --draft-length 0.")


def test_a_draft_length_too_short_is_found() -> None:
    assert "too few" in check_draft_length(rounds_of(0.98, 1.5, 0.02), 1).advice
