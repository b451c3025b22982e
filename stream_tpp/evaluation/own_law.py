"""A model's samples held against the model's own law, which teacher forcing gives without any sampler.

The conditional distribution function of each gap, and of each type given its gap, turns samples of the law into independent
uniform numbers (Rosenblatt 1952), whatever the memory: events count one by one, and no second sample adds its noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from stream_tpp.evaluation.paths import Paths
from stream_tpp.evaluation.permutation import POWER, holm
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.history import History
from stream_tpp.model.histories import pack
from stream_tpp.processes.sequence import Floats, Integers

if TYPE_CHECKING:
    from stream_tpp.model.model import Model

ROWS = 64
GRID = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """gap and type [n]: uniform and independent if the paths follow the model's law. log_likelihood [m]: of each path, in nats
    with gaps in seconds, its quiet end included."""

    gap: Floats
    type: Floats
    log_likelihood: Floats


@dataclass(frozen=True, slots=True)
class OwnLaw:
    """Tests of `Judged`: p-values (Holm-corrected), and the smallest deviation that each finds with 80% power.

    gap, type: Kolmogorov-Smirnov distance from uniform; its power is that of a shift at the median, critical value + 0.84 / (2
    sqrt n). pairs: chi-square of successive gaps in 8 by 8 cells; its power is Cohen's w from the noncentral chi-square.
    """

    tests: dict[str, float]
    power: dict[str, float]


@torch.inference_mode()
def judge(model: Model, prompts: Sequence[Prompt], paths: Paths, complete: NDArray[np.bool_], seed: int = 0) -> Judged:
    """What the model's law says of paths sampled from it; path p goes on from prompts[paths.strata[p]].

    complete bool [m]: the path reached the horizon; others ended at their last event, after a number of them.
    """
    rng = np.random.default_rng(seed)
    cuts = np.searchsorted(paths.path, np.arange(len(paths) + 1))
    rows = [
        _Row.of(prompts[stratum], model.window, paths.leads[cut], paths.types[cut], paths.horizon if reached else None)
        for stratum, cut, reached in zip(paths.strata, map(slice, cuts[:-1], cuts[1:]), complete, strict=True)
    ]
    found = [_laws(model, rows[first : first + ROWS], rng) for first in range(0, len(rows), ROWS)]
    hazards, densities, types, tails = ([one for part in column for one in part] for column in zip(*found, strict=True))
    likelihood = np.array([float(density.sum()) for density in densities]) - np.array(tails)
    return Judged(_laid_end_to_end(hazards, np.array(tails)), np.concatenate(types), likelihood)


def examine(judged: Judged, level: float) -> OwnLaw:
    """Three tests; `level` is the chance that any of them rejects the model's own law."""
    n = len(judged.gap)
    cell = np.minimum((judged.gap * GRID).astype(np.int64), GRID - 1)
    counts = np.bincount(cell[1:] * GRID + cell[:-1], minlength=GRID * GRID)
    freedom = GRID * GRID - 1
    raw = {
        "gap": float(stats.kstest(judged.gap, "uniform").pvalue),
        "type": float(stats.kstest(judged.type, "uniform").pvalue),
        "pairs": float(stats.chi2.sf(((counts - counts.mean()) ** 2).sum() / max(counts.mean(), 1e-300), freedom)),
    }
    first = level / len(raw)
    shift = float((stats.kstwobign.isf(first) + stats.norm.ppf(POWER) / 2) / math.sqrt(n))
    return OwnLaw(
        dict(zip(raw, holm(list(raw.values())), strict=True)),
        {"gap": shift, "type": shift, "pairs": _cohens_w(first, freedom, n)},
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A path behind its prompt: `history` as the target reads it, of which the events from index `start` on were sampled.

    gaps [n] in seconds, exact where differences of absolute times would not be; the first counts the quiet time `elapsed`.
    quiet: seconds from the last event to the horizon, None where the path did not reach it.
    """

    history: History
    start: int
    gaps: Floats
    elapsed: float
    quiet: float | None

    @classmethod
    def of(cls, prompt: Prompt, window: int, leads: Floats, types: Integers, horizon: float | None) -> _Row:
        """As the sampler has it: the last `window` events of the prompt, BOS at the event before, and all that was sampled."""
        past = prompt.history
        older = max(0, len(past) - window)
        start = float(past.times[older - 1]) if older else past.start
        if start is None and not len(past):
            start = prompt.now
        last = float(past.times[-1]) if len(past) else float(start or 0.0)
        elapsed = prompt.now - last
        times = np.concatenate([past.times[older:], prompt.now + leads])
        history = History(times, np.concatenate([past.types[older:], types]), start)
        quiet = None if horizon is None else horizon - (float(leads[-1]) if len(leads) else -elapsed)
        return cls(history, len(past) - older, np.diff(leads, prepend=-elapsed), elapsed, quiet)

    @property
    def place(self) -> slice:
        """Where the laws of its events stand: the law at place i of [BOS, e_0, ...] is that of e_i."""
        return slice(self.start, self.start + len(self.gaps))


class _Laws(NamedTuple):
    """By row: cumulated hazards and log densities (gaps in seconds) of the events given the quiet time, uniform numbers of the
    types, and the hazard of the quiet end."""

    hazards: list[Floats]
    densities: list[Floats]
    types: list[Floats]
    tails: list[float]


def _laws(model: Model, rows: list[_Row], rng: np.random.Generator) -> _Laws:
    scale = model.scale
    packed = pack([row.history for row in rows], scale, len(model.types), max(len(row.history) for row in rows))
    block = packed.block
    y = torch.zeros_like(block.y)
    elapsed, end = torch.full_like(y, -torch.inf), torch.full_like(y, -torch.inf)
    for number, row in enumerate(rows):
        y[number, row.place] = scale.to_y(torch.from_numpy(row.gaps))
        block.y[number, row.start + 1 : row.place.stop + 1] = y[number, row.place]
        elapsed[number, row.start] = scale.elapsed_to_y(torch.tensor(row.elapsed, dtype=torch.float64))
        if row.quiet is not None:
            end[number, row.place.stop] = scale.elapsed_to_y(torch.tensor(row.quiet, dtype=torch.float64))
    law = model.target(block)[0]
    following = block.types.roll(-1, 1).clamp(max=len(model.types) - 1)[..., None]
    log_types = law.types_given_gap(y)
    own = log_types.gather(-1, following)[..., 0]
    uniform = log_types.exp().cumsum(-1).gather(-1, following)[..., 0] - own.exp() * torch.from_numpy(rng.random(y.shape))
    known = law.log_survival(elapsed)
    hazard, tail = known - law.log_survival(y), known - law.log_survival(torch.maximum(end, elapsed))
    density = law.log_prob_gap(y) - known + own - (y * scale.log_std + scale.log_mean + math.log(scale.log_std))
    places = list(enumerate(row.place for row in rows))
    return _Laws(
        [hazard[number, place].numpy() for number, place in places],
        [density[number, place].numpy() for number, place in places],
        [uniform[number, place].numpy() for number, place in places],
        [float(tail[number, place.stop]) if rows[number].quiet is not None else 0.0 for number, place in places],
    )


def _laid_end_to_end(hazards: list[Floats], tails: Floats) -> Floats:
    """Uniform numbers [n] from cumulated hazards: a path's quiet end runs on into the next path (see Process.residuals)."""
    waits = np.concatenate(hazards)
    lengths = np.array([len(hazard) for hazard in hazards])
    before = np.cumsum(tails) - tails
    filled = np.flatnonzero(lengths)
    waits[(np.cumsum(lengths) - lengths)[filled]] += np.diff(before[filled], prepend=0.0)
    uniform: Floats = -np.expm1(-waits)
    return uniform


def _cohens_w(level: float, freedom: int, n: int) -> float:
    critical = stats.chi2.isf(level, freedom)
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if stats.ncx2.sf(critical, freedom, middle) >= POWER else (middle, high)
    return math.sqrt(high / n)
