"""Why a model accepts little, gives NaN, or samples slowly: one small check for each cause, each a finding in plain words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from stream_tpp.evaluation.mass import unnormalised
from stream_tpp.evaluation.prompts import Prompt, choose_prompts
from stream_tpp.evaluation.rounds import LENGTHS, Rounds, measure_rounds
from stream_tpp.event import Event
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.kernels.residual import SamplingError
from stream_tpp.logs.histories import gather_histories
from stream_tpp.model.binned import BinnedLaw
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.model import Model
from stream_tpp.sampling.draft_length import events_a_round
from stream_tpp.training.data import Batch, Crops, Observed
from stream_tpp.training.distillation import acceptance

_JUDGED_HISTORIES = 64
_EVENTS_A_PATH = 40
_MOST_OFF = 1e-3
_LITTLE, _ENOUGH = 0.5, 0.7
_NO_BETTER, _WORSE = 0.05, 0.2
_LOSS = 0.8
_MERGED, _TOO_FINE = 4, 0.1
_NO_GAIN = 0.8
_SLOW_VERIFICATION = 4.0
_FINER = {"ms": 1e3, "us": 1e6, "ns": 1e9}
_COARSER = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}

Verdict = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Finding:
    """What a check measured. A fault explains the trouble by itself, a warning may; advice says what is wrong and what to do."""

    check: str
    value: float | None
    verdict: Verdict = "ok"
    advice: str = ""


@dataclass(frozen=True)
class Examination:
    """How to examine: `prompts` histories, one at a time, `paths` futures of each. draft_length None: the one that pays best."""

    paths: int = 1
    prompts: int = 12
    draft_length: int | None = None
    seed: int = 0

    @property
    def lengths(self) -> list[int]:
        """Draft lengths to run."""
        return sorted({*LENGTHS, *([] if self.draft_length is None else [self.draft_length])})


@dataclass
class Seen:
    """What passed by on the way to `gather_histories`: all events, and those of types that the model doesn't know."""

    types: Sequence[str]
    events: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    def passing(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, counted."""
        known = frozenset(self.types)
        for event in events:
            self.events += 1
            if event.type not in known:
                self.unknown[event.type] += 1
            yield event


def examine(model: Model, events: Iterable[Event], how: Examination, done: Callable[[float], None]) -> Iterator[Finding]:
    """The findings, cheap checks first; what needs a law to be sampled is left out where there is none.

    `done` is told how many of the `how.prompts` histories were sampled. Raises StreamTppError where the log can't be read.
    """
    seen = Seen(model.types)
    histories = gather_histories(seen.passing(events), model.types).histories
    weights = check_weights(model)
    yield weights
    yield check_types(seen)
    if not histories:
        return
    yield check_time_unit(model.scale, histories)
    if weights.verdict == "fault":
        return
    prompts = choose_prompts(histories, max(how.prompts, _JUDGED_HISTORIES), how.seed)
    judged = [prompt.history for prompt in prompts[:_JUDGED_HISTORIES]]
    near = deepcopy(model).to("cpu")  # what training judges by has its tensors there
    density = check_density(near, judged)
    yield density
    if density.verdict == "fault":
        return
    if near.config.target.head == "binned":
        yield check_bins(near, judged)
    yield check_draft(near, judged)
    yield from _sampled(model, prompts[: how.prompts], how, done)


def check_weights(model: Model) -> Finding:
    """How many weights are NaN or infinite."""
    bad = [(f"{part}'s {name}", count) for part in ("target", "draft") for name, count in _not_finite(getattr(model, part))]
    total = sum(count for _, count in bad)
    if not total:
        return Finding("weights", 0)
    return Finding(
        "weights",
        total,
        "fault",
        f"{total} weights are NaN or infinite, the first of them in the {bad[0][0]}, and no law comes out of them: fit the model "
        "again with a lower --learning-rate.",
    )


def check_types(seen: Seen) -> Finding:
    """The share of the log's events whose type the model doesn't know."""
    unknown = seen.unknown.total()
    if not seen.events:
        return Finding("types", None, "fault", "The log holds no events: give one of the kind the model learned from.")
    if not unknown:
        return Finding("types", 0.0)
    share = unknown / seen.events
    names = ", ".join(repr(name) for name, _ in seen.unknown.most_common(3)) + (", ..." if len(seen.unknown) > 3 else "")
    mended = "check that --type names the right column" if share == 1 else "fit a model on a log that has them"
    return Finding(
        "types",
        share,
        "fault" if share > 0.5 else "warning",
        f"{share:.1%} of the events are of {len(seen.unknown)} types that the model doesn't know ({names}) and are left out; it "
        f"knows {', '.join(map(repr, seen.types[:5]))}{', ...' if len(seen.types) > 5 else ''}: {mended}.",
    )


def check_time_unit(scale: GapScale, histories: Mapping[str, History]) -> Finding:
    """The log's typical gap over that of the log which the model learned from."""
    gaps = np.concatenate([np.diff(history.times) for history in histories.values()])
    if not len(gaps):
        advice = "No entity has two events, so there are no gaps to judge: check that --entity names the right column."
        return Finding("time_unit", None, "warning", advice)
    # Ties count as they did in training, other gaps as they are: those of too small a unit are below the floor, too.
    off = float(np.log(np.where(gaps > 0, gaps, scale.floor)).mean()) - scale.log_mean
    if abs(off) < max(math.log(10), scale.log_std):
        return Finding("time_unit", math.exp(off))
    verdict: Verdict = "fault" if abs(off) > max(math.log(100), 1.5 * scale.log_std) else "warning"
    return Finding(
        "time_unit",
        math.exp(off),
        verdict,
        f"The log's gaps are {_times(off)} than those the model learned from ({math.exp(scale.log_mean + off):.3g} s against "
        f"{math.exp(scale.log_mean):.3g} s, geometric means): {_unit_advice(off)}.",
    )


def check_density(model: Model, histories: Sequence[History]) -> Finding:
    """How far from 1 the laws of target and draft integrate after these histories, the worst of them."""
    worst = 0.0
    for part, law in (("target", model.law(histories)), ("draft", _laws(model, histories)[1])):
        off = unnormalised(law, model.scale)
        none = int(np.isnan(off).sum())
        if none:
            advice = (
                f"The {part} gives no law (NaN or infinite) after {none} of {len(off)} histories: fit it again with a lower "
                "--learning-rate, and look at the time unit of the log."
            )
            return Finding("density", None, "fault", advice)
        worst = max(worst, float(off.max()))
        if worst > _MOST_OFF:
            advice = (
                f"The {part}'s density integrates to something else than 1 (off by {worst:.3g}) or puts weight on gaps that no "
                "number can hold, so its samples are not its law's: fit it again; a head of your own must normalise its weights."
            )
            return Finding("density", worst, "fault", advice)
    return Finding("density", worst)


def check_bins(model: Model, histories: Sequence[History]) -> Finding:
    """How much more of the target's law the draft would cover if every _MERGED neighbouring bins were one.

    Merging always helps; it helps much where neighbours hold too few events for two networks to agree on each by itself.
    """
    p, q = _laws(model, histories)
    assert isinstance(p, BinnedLaw)
    assert isinstance(q, BinnedLaw)
    fine, coarse = (_shared(_merge(p, bins), _merge(q, bins)) for bins in (1, _MERGED))
    if coarse - fine < _TOO_FINE:
        return Finding("bins", coarse - fine)
    bins = len(p.bins)
    return Finding(
        "bins",
        coarse - fine,
        "warning",
        f"The {bins} bins of time are too fine for what was learned: the draft covers {fine:.0%} of the target's law, and would "
        f"cover {coarse:.0%} with {_MERGED} bins made one. Fit again with fewer (--bins {max(50, bins // _MERGED)}), with "
        "--head mixture, or on a longer log.",
    )


def check_draft(model: Model, histories: Sequence[History]) -> Finding:
    """How much of the target's law the draft covers along these histories, beside the same draft before any training."""
    covered, at_fit = _covered(model, histories), model.facts.get("acceptance")
    if covered >= _ENOUGH or not any(True for _ in model.draft.parameters()):
        return Finding("draft", covered)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        untrained = build_draft(model.config, model.target, model.scale).eval()
    at_first = _covered(replace(model, draft=untrained), histories)
    said = f"The draft covers {covered:.0%} of the target's law"
    if covered <= at_first + _NO_BETTER:
        advice = (
            f"{said}, an untrained one {at_first:.0%}: it has learned nothing of this target. Fit the model again, with "
            "--distill and time enough for the draft (--draft-epochs, --time-limit)."
        )
        return Finding("draft", covered, "fault", advice)
    if isinstance(at_fit, float) and covered < at_fit - _WORSE:
        advice = f"{said}, {at_fit:.0%} when it was fitted: this log differs from that one, so fit on a log like this one."
        return Finding("draft", covered, "warning", advice)
    return Finding("draft", covered)


def check_acceptance(rounds: Rounds) -> Finding:
    """The chance that a drafted event stands."""
    a = rounds.acceptance
    if a >= _LITTLE:
        return Finding("acceptance", a)
    advice = (
        f"Only {a:.0%} of the drafted events stand while those before them do: fit the draft longer (--draft-epochs), wider "
        "(--draft-d-model) or of another kind (--draft)."
    )
    return Finding("acceptance", a, "warning", advice)


def check_draft_cost(rounds: Rounds) -> Finding:
    """What one more drafted event costs, in passes of the target."""
    cost = rounds.draft_cost
    if cost < 1:
        return Finding("draft_cost", cost)
    return Finding(
        "draft_cost",
        cost,
        "fault",
        f"One drafted event costs {cost:.2g} passes of the target, so drafting can't pay however much is accepted: use a smaller "
        "draft (--draft anchored, --draft-d-model 32), fewer --paths at once, or --draft-length 0 (drawing event by event).",
    )


def check_verification(rounds: Rounds) -> Finding:
    """What a round costs beside its drafted events, in passes of the target."""
    cost = rounds.pass_cost
    if cost < _SLOW_VERIFICATION:
        return Finding("verification", cost)
    return Finding(
        "verification",
        cost,
        "warning",
        f"A round costs {cost:.2g} passes of the target beside its drafted events: verifying them and rolling back "
        "what did not stand are slow beside this target. Try --threads 1; the deeper the target, the less it matters.",
    )


def check_draft_length(rounds: Rounds, chosen: int | None) -> Finding:
    """The draft length that was asked for, beside the one that pays best."""
    best = rounds.best
    if chosen is None:
        return Finding("draft_length", best)
    share = rounds.expected(chosen) / rounds.expected(best)
    if share >= _LOSS:
        return Finding("draft_length", chosen)
    stands = events_a_round(rounds.acceptance, chosen) - 1
    return Finding(
        "draft_length",
        chosen,
        "warning",
        f"Drafting {chosen} events a pass is too {'many' if chosen > best else 'few'}: {stands:.1f} of them stand, and sampling "
        f"has {share:.0%} of the speed that it would have with --draft-length {best}.",
    )


def check_speed(model: Model, rounds: Rounds, chosen: int | None) -> Finding:
    """Speed over that of drawing event by event, at the draft length asked for or else the best of those that were run."""
    gamma = chosen if chosen is not None else max(sorted(rounds.runs)[1:], key=rounds.speedup)
    speedup = rounds.speedup(gamma)
    if speedup >= _NO_GAIN:
        return Finding("speed", speedup)
    return Finding(
        "speed",
        speedup,
        "warning",
        f"Speculative sampling at draft length {gamma} has {speedup:.0%} of the speed of drawing event by event: "
        f"{_round_in_words(rounds, gamma)}. The target has {model.config.target.layers} layers; a deeper one, or a draft that is "
        f"accepted more or costs less, gains more. Until then use --draft-length {rounds.best}.",
    )


def _sampled(model: Model, prompts: Sequence[Prompt], how: Examination, done: Callable[[float], None]) -> Iterator[Finding]:
    try:
        rounds = measure_rounds(model, prompts, how.lengths, paths=how.paths, events=_EVENTS_A_PATH, seed=how.seed, done=done)
    except SamplingError as error:
        yield Finding("sampling", None, "fault", str(error))
        return
    yield check_acceptance(rounds)
    yield check_draft_cost(rounds)
    yield check_verification(rounds)
    yield check_draft_length(rounds, how.draft_length)
    yield check_speed(model, rounds, how.draft_length)


def _not_finite(module: nn.Module) -> Iterator[tuple[str, int]]:
    for name, tensor in module.named_parameters():
        count = int((~torch.isfinite(tensor)).sum())
        if count:
            yield name, count


def _crops(model: Model, histories: Sequence[History]) -> list[Batch]:
    observed = [Observed(history) for history in histories]
    return list(Crops(observed, model.scale, len(model.types), model.window, batch_size=16).judged())


def _covered(model: Model, histories: Sequence[History]) -> float:
    return acceptance(model.draft, model.target, _crops(model, histories))


@torch.inference_mode()
def _laws(model: Model, histories: Sequence[History]) -> tuple[Law, Law]:
    """The laws [n] of target and draft at the same places, along the longest of these histories."""
    batch = _crops(model, histories)[-1]
    block, lengths = batch.histories.block, batch.histories.lengths
    law, hidden = model.target(block)
    taught = model.draft.taught(block, hidden, steps=2)
    rows, size = block.y.shape
    counts = (taught.place < lengths[:, None, None]).reshape(-1).nonzero()[:, 0]
    chosen = counts[torch.linspace(0, len(counts) - 1, min(_JUDGED_HISTORIES, len(counts))).long()]
    index = (torch.arange(rows)[:, None, None] * size + taught.place).reshape(-1)[chosen]
    return law.reshape(rows * size).rows(index), taught.law.reshape(taught.place.numel() * rows).rows(chosen)


def _merge(law: BinnedLaw, bins: int) -> Tensor:
    """Probabilities [n, N / bins, K] of tokens whose bins are `bins` neighbours."""
    tokens = torch.nn.functional.pad(law.log_tokens.exp(), (0, 0, 0, -len(law.bins) % bins))
    return tokens.reshape(len(tokens), -1, bins, tokens.shape[-1]).sum(2)


def _shared(p: Tensor, q: Tensor) -> float:
    return float(torch.minimum(p, q).sum((-1, -2)).mean())


def _times(log_factor: float) -> str:
    return f"{math.exp(abs(log_factor)):.3g} times {'longer' if log_factor > 0 else 'shorter'}"


def _unit_advice(log_factor: float) -> str:
    """What may have been read in the wrong unit, where the factor is near that of one."""
    ratios = _FINER if log_factor > 0 else {**_FINER, **_COARSER}
    unit = min(ratios, key=lambda unit: abs(abs(log_factor) - math.log(ratios[unit])))
    if abs(abs(log_factor) - math.log(ratios[unit])) > math.log(10):
        return "check --time and --time-unit, and that this log is of the kind the model learned from"
    if log_factor > 0:
        return f"its times may be in {unit}: give --time-unit {unit}"
    if unit in _FINER:
        return f"its times may be in seconds and not in {unit}: give --time-unit s"
    return f"its times may be in {unit}, which count as seconds here: multiply them"


def _round_in_words(rounds: Rounds, gamma: int) -> str:
    stats = rounds.runs[gamma].stats
    cost = rounds.pass_cost + gamma * rounds.draft_cost
    return f"a round costs {cost:.2g} passes and gives {stats.events_per_target_pass:.2g} events"
