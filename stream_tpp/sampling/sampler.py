"""Sampling of futures, by the fastest way there is for a model and a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.protocols import Draft, Target
from stream_tpp.sampling import reference
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.prefixes import Prefixes

Backend = Literal["auto", "eager", "native"]
CPU = torch.device("cpu")


def sample(
    target: Target,
    draft: Draft,
    histories: Sequence[History],
    plan: Plan,
    *,
    scale: GapScale,
    types: int,
    window: int,
    seeds: Sequence[int],
    now: Sequence[float | None],
    device: torch.device = CPU,
    backend: Backend = "auto",
    prefixes: Prefixes | None = None,
    entities: Sequence[str] = (),
) -> Futures:
    """Futures of each history, given that nothing happened between its last event and `now` (None: at the last event).

    A path is a function of (history, now, plan, seed, path number): what shares the batch does not change it. See `sample_all`.
    """
    (futures,) = sample_all(
        target,
        draft,
        histories,
        [plan],
        scale=scale,
        types=types,
        window=window,
        seeds=[seeds],
        now=now,
        device=device,
        backend=backend,
        prefixes=prefixes,
        entities=entities,
    )
    return futures


def sample_all(
    target: Target,
    draft: Draft,
    histories: Sequence[History],
    plans: Sequence[Plan],
    *,
    scale: GapScale,
    types: int,
    window: int,
    seeds: Sequence[Sequence[int]],
    now: Sequence[float | None],
    device: torch.device = CPU,
    backend: Backend = "auto",
    prefixes: Prefixes | None = None,
    entities: Sequence[str] = (),
) -> list[Futures]:
    """Futures by each of several plans, with seeds [plans, B], of the same histories at the same times, which are read once.

    `types` and `window` are the model's number of types and longest history, `device` is where target and draft are; what
    comes back is on the CPU. backend "eager" is the reference in PyTorch; "native", machine code for CPUs, gives the same paths
    up to float32 rounding; "auto" takes that wherever it can. What it read of the histories it keeps in `prefixes`, one under
    each of the names `entities` (as many as histories), and takes from there; the futures are the same bits with and without.

    Raises StreamTppError where `now` is before a history's last event or the backend can't sample this, SamplingError where
    the model gives no law.
    """
    if backend != "eager":
        from stream_tpp.sampling.native import sampler as native

        if native.is_supported(target, draft, device):
            return native.sample(
                target,
                draft,
                histories,
                plans,
                scale=scale,
                types=types,
                window=window,
                seeds=seeds,
                now=now,
                prefixes=prefixes,
                entities=entities,
            )
        if backend == "native":
            raise StreamTppError(
                "The native backend samples on a CPU, from a float32 model with a mixture head and an anchored "
                "draft: use the eager backend for this one."
            )
    return [
        reference.sample(
            target, draft, histories, plan, scale=scale, types=types, window=window, seeds=of_plan, now=now, device=device
        )
        for plan, of_plan in zip(plans, seeds, strict=True)
    ]
