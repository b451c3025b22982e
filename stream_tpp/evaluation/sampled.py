"""Futures of many prompts by one sampler, laid flat for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.paths import Paths
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.processes.sequence import Floats, Integers
from stream_tpp.sampling.futures import Stats

if TYPE_CHECKING:
    from stream_tpp.model.model import Model

PROMPTS_AT_ONCE = 32
MOST_EVENTS = 2000
_PILOT_SEED = 1 << 61


@dataclass(frozen=True, slots=True)
class Sampler:
    """Autoregression is a draft length of 0."""

    draft_length: int = 0
    mode: str = "joint"


@dataclass(frozen=True, slots=True)
class Sampled:
    """Paths, `complete` bool [m] where a path reached the horizon (others ended after MOST_EVENTS events), and their cost."""

    paths: Paths
    complete: NDArray[np.bool_]
    stats: Stats


def sample_paths(model: Model, prompts: Sequence[Prompt], horizon: float, paths: int, sampler: Sampler, seed: int) -> Sampled:
    """`paths` futures of each prompt over `horizon` seconds; prompt number b is stratum b.

    Samples to be compared need different seeds: samplers share their random numbers.
    """
    parts, complete, stats = [], [], Stats()
    for first in range(0, len(prompts), PROMPTS_AT_ONCE):
        some = prompts[first : first + PROMPTS_AT_ONCE]
        futures = model.sample(
            [prompt.history for prompt in some],
            now=[prompt.now for prompt in some],
            horizon=horizon,
            max_events=MOST_EVENTS,
            paths=paths,
            seed=seed + (first << 20),
            draft_length=sampler.draft_length,
            mode=sampler.mode,
            # What others are compared with comes from the reference.
            backend="auto" if sampler.draft_length else "eager",
        )
        parts.append(Paths.of_futures(futures, horizon))
        complete.append(futures.complete.numpy().ravel())
        stats.add(futures.stats)
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
    whole = Paths(
        np.concatenate([part.leads for part in parts]),
        np.concatenate([part.types for part in parts]),
        np.concatenate([part.path + start for part, start in zip(parts, starts, strict=True)]),
        np.repeat(np.arange(len(prompts)), paths),
        horizon,
    )
    return Sampled(whole, np.concatenate(complete), stats)


def typical_horizon(model: Model, prompts: Sequence[Prompt], events: int, seed: int) -> float:
    """Seconds in which half of the prompts see `events` events, by one autoregressive path each."""
    ends = []
    for first in range(0, len(prompts), PROMPTS_AT_ONCE):
        some = prompts[first : first + PROMPTS_AT_ONCE]
        futures = model.sample(
            [prompt.history for prompt in some],
            now=[prompt.now for prompt in some],
            max_events=events,
            seed=seed + _PILOT_SEED + (first << 20),
            draft_length=0,
        )
        ends.append(futures.leads[:, 0, events - 1].numpy())
    horizon = float(np.median(np.concatenate(ends)))
    if not 0 < horizon < float("inf"):
        raise StreamTppError(f"The model's futures give no horizon to compare over ({horizon} seconds): give one.")
    return horizon


def next_events(model: Model, prompt: Prompt, draws: int, sampler: Sampler, seed: int) -> tuple[Floats, Integers]:
    """Independent draws of the event after a prompt: gaps [draws] in seconds from now, and types [draws]."""
    futures = model.sample(
        [prompt.history],
        now=prompt.now,
        max_events=1,
        paths=draws,
        seed=seed,
        draft_length=sampler.draft_length,
        mode=sampler.mode,
    )
    return futures.leads[0, :, 0].numpy(), futures.types[0, :, 0].numpy()
