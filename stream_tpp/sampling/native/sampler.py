"""From histories to futures by way of the machine code: what `stream_tpp.sampling.sampler.sample` does, for what it supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import starmap
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale
from stream_tpp.kernels.random import row_keys
from stream_tpp.kernels.residual import SamplingError
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.model.heads import MixtureHead
from stream_tpp.model.histories import pack
from stream_tpp.model.target import Target
from stream_tpp.sampling.futures import Futures, Stats
from stream_tpp.sampling.native.paths import ACCEPTED, DRAFTED, EVENTS, FAILED, PASSES, ROW_PASSES
from stream_tpp.sampling.native.program import program
from stream_tpp.sampling.native.verification import MODES
from stream_tpp.sampling.native.weights import Weights, gather_weights
from stream_tpp.sampling.plan import Plan, elapsed_since, given, observed
from stream_tpp.sampling.prefixes import Prefix, Prefixes, events_of

_NO_END = 2**62
_ROWS_AT_ONCE = 32
T = TypeVar("T")


class Last(NamedTuple):
    """The last event of a history, and the time of its BOS."""

    y: float
    kind: int
    time: float
    origin: float


def is_supported(target: Any, draft: Any, device: torch.device) -> bool:
    """Whether the machine code can sample this: see the package's docstring."""
    return (
        device.type == "cpu"
        and isinstance(target, Target)
        and isinstance(target.head, MixtureHead)
        and type(draft) is AnchoredDraft
        and not target.training
        and all(p.dtype == torch.float32 for p in _parameters(target))
    )


@torch.inference_mode()
def sample(
    target: Any,
    draft: Any,
    histories: Sequence[History],
    plan: Plan,
    *,
    scale: GapScale,
    types: int,
    window: int,
    seeds: Sequence[int],
    now: Sequence[float | None],
    prefixes: Prefixes | None = None,
    entities: Sequence[str] = (),
) -> Futures:
    """See `stream_tpp.sampling.sampler.sample`: the same futures, up to float32 rounding in the networks.

    A path is the same to the last bit whatever shares the batch, and whatever the number of threads.
    """
    weights = _weights_of(target, draft)
    packed = pack([observed(h, t) for h, t in zip(histories, now, strict=True)], scale, types, window)
    elapsed = elapsed_since(packed.last.times[:, 0], now)
    low = scale.elapsed_to_y(elapsed).tolist()
    keys = row_keys(seeds, plan.first_path, plan.paths).numpy().view(np.uint64)
    y, kinds, times = packed.block.y.numpy(), packed.block.types.numpy(), packed.block.times.numpy()
    lengths = packed.lengths.tolist()
    permitted = np.zeros(0, np.bool_) if plan.permitted is None else plan.permitted.cpu().numpy()
    code, nothing = program(), _nothing(weights)
    found = [None] * len(histories) if prefixes is None else [prefixes.by(weights).find(entity) for entity in entities]

    def read(row: int) -> tuple[Prefix, int]:
        n, old = lengths[row] - 1, found[row]
        events = y[row, :n], kinds[row, :n], times[row, :n]
        bits = events_of(*events)
        if old is None:
            return Prefix(bits, *code.read_history(weights, *events, nothing, nothing, 0)), 0
        known = old.shared(bits)
        if known == n == len(old):
            return old, known
        # Of a longer one all but the state at the last event is there.
        known = max(0, min(known, n - 1))
        return Prefix(bits, *code.read_history(weights, *events, old.keys, old.values, known)), known

    whole = _in_threads(read, [(row,) for row in range(len(histories))])
    if prefixes is not None:
        for entity, (prefix, known) in zip(entities, whole, strict=True):
            prefixes.keep(entity, prefix, known)
    chunks = -(-torch.get_num_threads() // len(histories))
    slots = -(-_ROWS_AT_ONCE // (plan.draft_length + 1))

    def run(row: int, part: NDArray[np.uint64]) -> Any:
        n, prefix = lengths[row] - 1, whole[row][0]
        return code.sample_paths(
            weights,
            prefix.keys[0],
            prefix.values[0],
            n,
            prefix.hidden,
            Last(float(y[row, n]), int(kinds[row, n]), float(times[row, n]), float(times[row, 0])),
            float(elapsed[row]),
            low[row],
            scale.log_mean,
            scale.log_std,
            part,
            permitted,
            MODES[plan.mode],
            plan.draft_length,
            plan.reanchor_after,
            float("inf") if plan.horizon is None else float(plan.horizon),
            _NO_END if plan.max_events is None else plan.max_events,
            min(len(part), slots),
        )

    parts = [(row, part) for row in range(len(histories)) for part in np.array_split(keys[row], min(chunks, plan.paths))]
    results = _in_threads(run, parts)
    return _futures(results, len(histories), target, plan, elapsed, packed.last.times[:, 0] + elapsed, scale)


def _futures(
    results: list[Any], batch: int, target: Target, plan: Plan, elapsed: torch.Tensor, base: torch.Tensor, scale: GapScale
) -> Futures:
    figures = np.stack([result[4] for result in results])
    if figures[:, FAILED].any():
        raise SamplingError.no_law()
    stats = Stats(*(int(figures[:, i].sum()) for i in (PASSES, ROW_PASSES, DRAFTED, ACCEPTED, EVENTS)))
    parts = len(results) // batch
    total = np.concatenate([result[3] for result in results])
    width = int(total.max())

    def whole(column: int, filler: float) -> torch.Tensor:
        padded = [_cut(result[column], width, filler) for result in results]
        return torch.from_numpy(np.concatenate(padded)).reshape(batch, plan.paths, width)

    leads, types = whole(0, np.inf), whole(1, -1)
    lengths = torch.from_numpy(total).reshape(batch, plan.paths)
    complete = torch.ones_like(lengths, dtype=torch.bool)
    if plan.horizon is not None:
        past = leads > plan.horizon
        leads, types = leads.masked_fill(past, torch.inf), types.masked_fill(past, -1)
        ended = past & (torch.arange(width) < lengths[..., None])
        complete, lengths = ended.any(-1), lengths - ended.sum(-1)
    most = int(lengths.max())
    here = torch.arange(most) < lengths[..., None]
    leads, types = leads[..., :most], types[..., :most]
    components, kinds = target.config.components, target.config.types
    raw = [np.concatenate((result[5][: 3 * components], result[6][:kinds])) for result in results[::parts]]
    law = target.head.law(torch.from_numpy(np.stack(raw)))
    return Futures(
        times=base[:, None, None] + leads,
        leads=leads,
        types=types,
        lengths=lengths,
        complete=complete,
        log_permitted=None if plan.permitted is None else torch.where(here, whole(2, 0.0)[..., :most], 0.0),
        next=given(law.reshape(batch, 1), scale.elapsed_to_y(elapsed), plan.permitted).reshape(batch),
        stats=stats,
    )


def _cut(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """[P, N] with N = width."""
    if array.shape[1] >= width:
        return array[:, :width]
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=filler)


def _nothing(weights: Weights) -> NDArray[np.float32]:
    """No keys of no events."""
    layers, width = len(weights.encoder.qkv.weight), len(weights.encoder.event.bias)
    return np.zeros((1, layers, width, 0), np.float32)


_gathered: WeakKeyDictionary[Target, tuple[Any, Weights]] = WeakKeyDictionary()


def _weights_of(target: Target, draft: AnchoredDraft) -> Weights:
    """The weights, gathered again when training has changed them."""
    state = tuple((p.data_ptr(), p._version) for module in (target, draft) for p in _parameters(module))
    held = _gathered.get(target)
    if held is None or held[0] != state:
        held = _gathered[target] = state, gather_weights(target, draft)
    return held[1]


_parts: WeakKeyDictionary[nn.Module, tuple[nn.Module, ...]] = WeakKeyDictionary()


def _parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """`module.parameters()`, which takes a millisecond for twenty layers; here the modules are looked up once."""
    parts = _parts.get(module)
    if parts is None:
        parts = _parts[module] = tuple(module.modules())
    return (p for part in parts for p in part._parameters.values() if p is not None)


def _in_threads(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """The results in order; in as many threads as torch uses."""
    threads = torch.get_num_threads()
    if threads == 1 or len(arguments) == 1:
        return list(starmap(work, arguments))
    return list(_pool(threads).map(lambda some: work(*some), arguments))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="stream-tpp-paths")
