"""Was a sample drawn from the toy's law? Exact for any target with memory, because the law is written down.

Under the truth the conditional distribution function of each gap, and of each type given its gap, turns the events into
independent uniform numbers (Rosenblatt 1952), whatever the memory. Where paths end at a horizon the cumulated hazard is
taken instead, with the quiet tail of each path running on into the next (see `Process.residuals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from stream_tpp.evaluation.paths import Paths
from stream_tpp.history import History
from stream_tpp.model.histories import Histories, pack
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.sampler import sample

from .toy import SCALE, Parts, Toy, ToyDraft, ToyTarget

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
WINDOW = 32
ENDS = np.array([0.005, 0.02, 0.1, 0.9, 0.98, 0.995])


@dataclass(frozen=True)
class Situation:
    """What is sampled from: histories, the time now of each (quiet since its last event), and a plan."""

    histories: tuple[History, ...]
    now: tuple[float | None, ...]
    plan: Plan

    def simulate(self, target: ToyTarget, draft: ToyDraft, seed: int = 0) -> Futures:
        """The sampler's futures."""
        seeds = [1000 * seed + b for b in range(len(self.histories))]
        kinds = target.toy.num_types
        return sample(
            target, draft, self.histories, self.plan, scale=SCALE, types=kinds, window=WINDOW, seeds=seeds, now=self.now
        )

    def paths(self, target: ToyTarget, draft: ToyDraft, seed: int = 0) -> Paths:
        """The same, laid flat."""
        return Paths.of_futures(self.simulate(target, draft, seed), self.plan.horizon)

    def packed(self, kinds: int) -> Histories:
        return pack(self.histories, SCALE, kinds, WINDOW)

    def elapsed(self) -> torch.Tensor:
        """Quiet seconds since the last event (or the start) of each history, [B]."""
        last = [h.times[-1] if len(h) else (h.start or 0.0) for h in self.histories]
        return torch.tensor([0.0 if now is None else now - at for now, at in zip(self.now, last, strict=True)])


def history(gaps: Sequence[float], types: Sequence[int], start: float = 0.0) -> History:
    """A history from its gaps in seconds."""
    return History(start + np.cumsum(np.asarray(gaps, dtype=np.float64)), np.asarray(types, dtype=np.int64), start)


@dataclass(frozen=True)
class Uniforms:
    """What the truth turns the events into, in order: gap [n] and type [n], all uniform and independent of one another.

    Nor do they depend on what was known before: for a type, before [n] and place [n] are the type before it and its number in
    its path; for a gap, gap_before [n] and gap_place [n] are the same where paths have a fixed number of events. With a
    horizon a gap may run on into the next path, and they are the type and number of the event that it follows.
    """

    gap: Numbers
    type: Numbers
    before: Integers
    place: Integers
    gap_before: Integers
    gap_place: Integers


@torch.inference_mode()
def rosenblatt(toy: Toy, situation: Situation, paths: Paths, seed: int = 1) -> Uniforms:
    """Uniform numbers of all events, path after path; `seed` spreads each type over its share of the unit interval."""
    packed, elapsed = situation.packed(toy.num_types), situation.elapsed()
    leads, kinds, lengths = _padded(paths)
    stratum = torch.from_numpy(paths.strata)
    state = toy.at_history(packed)[torch.arange(len(packed.lengths)), packed.lengths][stratum]
    quiet, tail = elapsed[stratum], torch.zeros(len(lengths), dtype=torch.float64)
    random = torch.Generator().manual_seed(seed)
    hazard, uniform, before = torch.zeros_like(leads[:, 1:]), torch.zeros_like(leads[:, 1:]), torch.zeros_like(kinds)
    for place in range(kinds.shape[1] + 1):
        parts = toy.parts(state)
        sure = parts.survival(SCALE.elapsed_to_y(quiet)).log()
        if situation.plan.horizon is not None:
            rest = SCALE.to_y(quiet + situation.plan.horizon - leads[:, place])
            tail = torch.where(lengths == place, sure - parts.survival(rest).log(), tail)
        if place == kinds.shape[1]:
            break
        y = SCALE.to_y(quiet + leads[:, place + 1] - leads[:, place])
        shares = parts.types_given_gap(y)
        own = shares.gather(-1, kinds[:, place, None])[:, 0]
        below = shares.cumsum(-1).gather(-1, kinds[:, place, None])[:, 0]
        hazard[:, place] = sure - parts.survival(y).log()
        uniform[:, place] = below - own * torch.rand(own.shape, generator=random, dtype=torch.float64)
        before[:, place] = state[:, 2].long()
        state, quiet = toy.step(state, y, kinds[:, place]), torch.zeros_like(quiet)
    present = torch.arange(kinds.shape[1]) < lengths[:, None]
    before_each, place_each = before[present].numpy(), torch.arange(kinds.shape[1]).expand_as(kinds)[present].numpy()
    fixed = situation.plan.horizon is None
    return Uniforms(
        gap=_laid_end_to_end(hazard.numpy(), tail.numpy(), present.numpy()),
        type=uniform[present].numpy(),
        before=before_each,
        place=place_each,
        gap_before=before_each if fixed else np.concatenate([[-1], paths.types[:-1]]),
        gap_place=place_each if fixed else np.concatenate([[-1], place_each[:-1]]),
    )


def _padded(paths: Paths) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Leads [R, 1 + N] (0 first, the last lead repeated past the end), types [R, N] (0 past the end) and lengths [R]."""
    lengths = np.bincount(paths.path, minlength=len(paths))
    place = np.arange(len(paths.path)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    leads, types = np.zeros((len(paths), 1 + lengths.max())), np.zeros((len(paths), lengths.max()), dtype=np.int64)
    leads[paths.path, 1 + place], types[paths.path, place] = paths.leads, paths.types
    return torch.from_numpy(np.maximum.accumulate(leads, 1)), torch.from_numpy(types), torch.from_numpy(lengths)


def _laid_end_to_end(hazard: Numbers, tail: Numbers, present: NDArray[np.bool_]) -> Numbers:
    """Hazards [R, N] of the events that are present; those of a path's quiet tail [R] are added to the next event's."""
    spent = np.where(present, hazard, 0.0)
    ends = np.cumsum(spent.sum(1) + tail)
    starts = np.concatenate([[0.0], ends[:-1]])
    at = (starts[:, None] + np.cumsum(spent, 1))[present]
    gaps: Numbers = -np.expm1(-np.diff(at, prepend=0.0))
    return gaps


def p_values(numbers: Uniforms) -> dict[str, float]:
    """One test for each way in which uniform numbers can fail to be independent and uniform."""
    gap, kind = numbers.gap, numbers.type
    early, gap_early = numbers.place < 6, numbers.gap_place < 6
    return {
        "gap": _flat(gap, 50),
        "gap, at its ends": _flat(gap, ENDS),
        "gap, smoothly": float(stats.kstest(gap, "uniform").pvalue),
        "type": _flat(kind, 50),
        "type given the gap": _flat(gap, 8, kind),
        "gap after gap": _flat(gap[1:], 8, gap[:-1]),
        "type after type": _flat(kind[1:], 8, kind[:-1]),
        "gap after type": _flat(gap, 10, group=numbers.gap_before),
        "type by the type before": _flat(kind, 10, group=numbers.before),
        "gap by place": _flat(gap[gap_early], 10, group=numbers.gap_place[gap_early]),
        "type by place": _flat(kind[early], 10, group=numbers.place[early]),
    }


def departure(toy: Toy, situation: Situation, paths: Paths) -> float:
    """p-value of "these paths were drawn from the toy's law": Bonferroni over all tests."""
    found = p_values(rosenblatt(toy, situation, paths))
    return min(1.0, len(found) * min(found.values()))


def _flat(values: Numbers, bins: int | Numbers, other: Numbers | None = None, group: Integers | None = None) -> float:
    """Chi-square of a flat histogram: of as many equal bins, or with the edges given; with `other` in two dimensions; with
    `group` separately in each group that has enough, and added up."""
    edges = np.arange(1, bins) / bins if isinstance(bins, int) else bins
    widths = np.diff(edges, prepend=0.0, append=1.0)
    cell = np.searchsorted(edges, values)
    if other is not None:
        cell, widths = cell * len(widths) + np.searchsorted(edges, other), np.outer(widths, widths).ravel()
    group = np.zeros_like(cell) if group is None else group
    statistic, freedom = 0.0, 0
    for one in np.unique(group):
        counts = np.bincount(cell[group == one], minlength=len(widths))
        expected = widths * counts.sum()
        if expected.min() >= 5:
            statistic += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(widths) - 1
    return float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0


@torch.inference_mode()
def directly(toy: Toy, situation: Situation, seed: int) -> Paths:
    """Paths drawn event by event from the formulas, with NumPy's random numbers: no cache, no draft, none of the sampler."""
    rng, plan = np.random.default_rng(seed), situation.plan
    packed, elapsed = situation.packed(toy.num_types), situation.elapsed()
    batch = len(situation.histories)
    state = toy.at_history(packed)[torch.arange(batch), packed.lengths].repeat_interleave(plan.paths, 0)
    quiet = elapsed.repeat_interleave(plan.paths).numpy()
    rows, leads = np.arange(len(state)), np.zeros(len(state))
    found: list[tuple[Integers, Numbers, Integers]] = []
    while len(rows) and (plan.max_events is None or len(found) < plan.max_events):
        parts = toy.parts(state)
        gap = np.zeros(len(rows))
        while (waiting := gap <= quiet).any():
            y = _gaps(parts, rng)
            gap[waiting] = SCALE.to_gap(torch.from_numpy(y)).numpy()[waiting]
        y_tensor = SCALE.to_y(torch.from_numpy(gap))
        shares = parts.types_given_gap(y_tensor).numpy()
        types = (rng.random(len(rows))[:, None] >= shares.cumsum(1)[:, :-1]).sum(1)
        leads = leads + gap - quiet
        state, quiet = toy.step(state, y_tensor, torch.from_numpy(types)), np.zeros(len(rows))
        inside = leads <= (np.inf if plan.horizon is None else plan.horizon)
        rows, leads, quiet, types, state = rows[inside], leads[inside], quiet[inside], types[inside], state[inside]
        found.append((rows, leads, types))
    row, lead, kind = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(row, kind="stable")
    return Paths(lead[order], kind[order], row[order], np.repeat(np.arange(batch), plan.paths), plan.horizon)


def _gaps(parts: Parts, rng: np.random.Generator) -> Numbers:
    weights, locs, scales, _ = (t.numpy() for t in parts)
    component = (rng.random(len(weights))[:, None] >= np.exp(weights).cumsum(1)[:, :-1]).sum(1)
    row = np.arange(len(weights))
    drawn: Numbers = locs[row, component] + scales[row, component] * rng.normal(size=len(row))
    return drawn
