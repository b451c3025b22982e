"""How many events to draft for each pass of the target: policies that choose it anew for each call of the sampler.

Any length gives futures of the same law; it is their cost that differs. A length is chosen before a call from what the calls
before it cost, never from the futures of the call itself, which would favour some of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.sampling.futures import Futures, Stats
from stream_tpp.sampling.plan import Plan

POLICIES = ("acceptance", "throughput", "utilisation")
LONGEST = 16
"""What policies choose from ends here: beyond it a pass yields hardly more, and what is drafted in vain costs."""
FIRST = 4
FADING, LEAST_CALLS = 0.95, 1.0
LOOK = 10


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the sampler that has ended: `rows` paths side by side, how many events were drafted a pass, what it cost."""

    rows: int
    draft_length: int
    stats: Stats
    seconds: float


@runtime_checkable
class DraftLength(Protocol):
    """A policy, for the calls of one model: it chooses before each call and is told of it afterwards."""

    def choose(self, rows: int) -> int:
        """The draft length of the next call, of so many paths (histories times paths of each); 0 is plain autoregression."""

    def observe(self, call: Call) -> None:
        """Learn from a call."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    length: int

    def choose(self, rows: int) -> int:
        return self.length

    def observe(self, call: Call) -> None:
        pass


class Acceptance:
    """A tenth event for each tenth of the drafted events that stood in the last batch, at least 2, at most 8."""

    def __init__(self) -> None:
        self._length = FIRST

    def choose(self, rows: int) -> int:
        return self._length

    def observe(self, call: Call) -> None:
        if call.stats.drafted:
            self._length = min(max(int(call.stats.acceptance * 10), 2), 8)


class Throughput:
    """The length that is expected to give the most events for each measured millisecond, 0 (nothing drafted) among them.

    Batches of about the same size are measured together, those of another size apart: what pays for one path does not for a
    thousand. The first call at each length is not counted; it pays for what is done once.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, _Measured] = {}

    def choose(self, rows: int) -> int:
        return self._of(rows).choose()

    def observe(self, call: Call) -> None:
        self._of(call.rows).observe(call)

    def _of(self, rows: int) -> _Measured:
        return self._by_size.setdefault(round(math.log2(rows)), _Measured())


class Utilisation:
    """A longer draft while the device is less than 75 percent busy, a shorter one while it is more than 85 percent busy.

    busy: the share of the device's time in use just now, 0 to 1. It is an average over about a second (NVML's longest
    period), so a step waits until so much has been sampled.
    """

    LOW, HIGH, PERIOD = 0.75, 0.85, 1.0

    def __init__(self, busy: Callable[[], float]) -> None:
        self._busy = busy
        self._length = FIRST
        self._since = 0.0

    def choose(self, rows: int) -> int:
        return self._length

    def observe(self, call: Call) -> None:
        self._since += call.seconds
        if self._since < self.PERIOD:
            return
        self._since = 0.0
        busy = self._busy()
        step = (busy < self.LOW) - (busy > self.HIGH)
        self._length = min(max(self._length + step, 0), LONGEST)


def policy(name: str, device: torch.device) -> DraftLength:
    """A new policy of that name for a model on `device`. Raises StreamTppError where it can't be had."""
    if name == "acceptance":
        return Acceptance()
    if name == "throughput":
        return Throughput()
    if name == "utilisation":
        return Utilisation(_busy(device))
    raise StreamTppError(f"There is no draft length policy {name!r}: give a number, or one of {', '.join(POLICIES)}.")


def sample_by(
    draft_length: int | DraftLength, plan: Plan, rows: int, device: torch.device, run: Callable[[Plan], Futures]
) -> Futures:
    """`run` with the plan at the length that was given or that the policy chooses; the policy is told what it cost."""
    if isinstance(draft_length, str):
        raise StreamTppError(
            f"The draft length is {draft_length!r}: give a number, or a policy that is kept from call to call "
            f"(stream_tpp.sampling.draft_length.policy({draft_length!r}, model.device))."
        )
    by = draft_length if isinstance(draft_length, DraftLength) else Fixed(draft_length)
    plan = replace(plan, draft_length=by.choose(rows))
    # On one thread of the CPU its own time counts, which other processes don't lengthen.
    clock = time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    futures = run(plan)
    by.observe(Call(rows, plan.draft_length, futures.stats, clock() - began))
    return futures


def events_a_round(a: float, gamma: int) -> float:
    """1 + a + .. + a^gamma: what a round yields where each drafted event stands with chance a if those before it do."""
    return (1 - a ** (gamma + 1)) / (1 - a) if a < 1 else gamma + 1.0


@dataclass
class _Runs:
    """The calls at one length, added up; `calls` of them, fewer as they fade."""

    gamma: int
    calls: float = 0.0
    seconds: float = 0.0
    rounds: float = 0.0
    events: float = 0.0
    accepted: float = 0.0
    rejected: float = 0.0

    def add(self, stats: Stats, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        self.rounds += stats.row_passes
        self.events += stats.events
        self.accepted += stats.accepted
        self.rejected += stats.rejected

    def fade(self) -> None:
        """Weigh less, but never less than what is expected does: a machine has lengths that no line foresees."""
        if self.calls > LEAST_CALLS:
            for name in ("calls", "seconds", "rounds", "events", "accepted", "rejected"):
                setattr(self, name, getattr(self, name) * FADING)

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def round_seconds(self) -> float:
        return self.seconds / self.rounds

    @property
    def chance(self) -> float:
        """That a drafted event stands where those before it do: rounds may draft fewer than gamma, near the end of a path."""
        judged = self.accepted + self.rejected
        return self.accepted / judged if judged else 0.0


@dataclass
class _Measured:
    """Calls of one size of batch. What a length yields a second is measured where it has run, and elsewhere expected:
    events_a_round of the newest acceptance over a straight line through the measured costs of a round."""

    begun: set[int] = field(default_factory=set)
    runs: dict[int, _Runs] = field(default_factory=dict)
    seen: int = 0

    def choose(self) -> int:
        for gamma in (FIRST, 0, 8):
            if gamma not in self.runs:
                return gamma
        rates = self._rates()
        best = max(rates, key=rates.__getitem__)
        if self.seen % LOOK:
            return best
        # Now and then the second best, or 0: it may have become the best, or was measured at a bad time.
        if best and self.seen % (4 * LOOK) == 0 and 2 * rates[0] > rates[best]:
            return 0
        return max(rates.keys() - {best}, key=rates.__getitem__)

    def observe(self, call: Call) -> None:
        self.seen += 1
        for runs in self.runs.values():
            runs.fade()
        if call.draft_length in self.begun:
            self.runs.setdefault(call.draft_length, _Runs(call.draft_length)).add(call.stats, call.seconds)
        self.begun.add(call.draft_length)

    def _rates(self) -> dict[int, float]:
        """Events a second by length: what was measured there, and what is expected, which weighs as much as one call. The
        longer ago a length was run, the more the expectation counts again."""
        found = {0: self.runs[0].rate}
        for gamma, expected in self._expected().items():
            runs = self.runs.get(gamma)
            found[gamma] = (runs.calls * runs.rate + expected) / (runs.calls + 1) if runs else expected
        return found

    def _expected(self) -> dict[int, float]:
        """Events a second of the lengths from 1, by a curve that goes through the one which was run most of late."""
        drafting = [runs for gamma, runs in self.runs.items() if gamma]
        most = max(drafting, key=lambda runs: runs.calls)
        start, slope = _line(drafting)
        chance = most.chance
        # A round that drafts costs no less than one that doesn't.
        rates = {
            gamma: events_a_round(chance, gamma) / max(start + slope * gamma, self.runs[0].round_seconds)
            for gamma in range(1, LONGEST + 1)
        }
        return {gamma: rate * most.rate / rates[most.gamma] for gamma, rate in rates.items()}


def _line(runs: list[_Runs]) -> tuple[float, float]:
    """Start and slope of the straight line through the seconds of a round by draft length, each weighed by its calls."""
    weight = sum(one.calls for one in runs)
    gamma = sum(one.calls * one.gamma for one in runs) / weight
    seconds = sum(one.calls * one.round_seconds for one in runs) / weight
    together = sum(one.calls * (one.gamma - gamma) * (one.round_seconds - seconds) for one in runs)
    slope = together / sum(one.calls * (one.gamma - gamma) ** 2 for one in runs)
    return seconds - slope * gamma, slope


def _busy(device: torch.device) -> Callable[[], float]:
    if device.type != "cuda":
        raise StreamTppError(
            "The draft length policy utilisation asks a GPU how busy it is, and this model is on the CPU, which sampling keeps "
            "busy at any draft length: use throughput."
        )
    try:
        torch.cuda.utilization(device)
    except (ModuleNotFoundError, RuntimeError) as error:
        raise StreamTppError(
            f"The draft length policy utilisation can't ask the GPU how busy it is ({error}): pip install nvidia-ml-py, or use "
            "throughput."
        ) from None
    return lambda: torch.cuda.utilization(device) / 100
