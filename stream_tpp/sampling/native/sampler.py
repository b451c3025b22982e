"""From histories to futures by way of the machine code: what `stream_tpp.sampling.sampler.sample` does, for what it supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice, starmap
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, Law, MixtureLaw
from stream_tpp.kernels.random import row_keys
from stream_tpp.kernels.residual import SamplingError
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.model.heads import MixtureHead
from stream_tpp.model.histories import pack
from stream_tpp.model.target import Target
from stream_tpp.sampling.futures import Futures, Stats
from stream_tpp.sampling.native.law import NativeLaw
from stream_tpp.sampling.native.paths import ACCEPTED, DRAFTED, EVENTS, FAILED, PASSES, REJECTED, ROW_PASSES
from stream_tpp.sampling.native.program import program
from stream_tpp.sampling.native.verification import MODES
from stream_tpp.sampling.native.weights import Weights, gather_weights
from stream_tpp.sampling.plan import Plan, elapsed_since, given, observed
from stream_tpp.sampling.prefixes import Prefix, Prefixes, events_of

_NO_END = 2**62
ROWS_AT_ONCE = 16
"""Of a pass. More would share its reading of the weights, and crowd their own keys and values out of a core's cache."""
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
    plans: Sequence[Plan],
    *,
    scale: GapScale,
    types: int,
    window: int,
    seeds: Sequence[Sequence[int]],
    now: Sequence[float | None],
    prefixes: Prefixes | None = None,
    entities: Sequence[str] = (),
) -> list[Futures]:
    """See `stream_tpp.sampling.sampler.sample_all`: the same futures, up to float32 rounding in the networks.

    A path is the same to the last bit whatever shares the batch, and whatever the number of threads.
    """
    weights = _weights_of(target, draft)
    packed = pack([observed(h, t) for h, t in zip(histories, now, strict=True)], scale, types, window)
    elapsed = elapsed_since(packed.last.times[:, 0], now)
    quiet, low = elapsed.tolist(), scale.elapsed_to_y(elapsed).tolist()
    y, kinds, times = packed.block.y.numpy(), packed.block.types.numpy(), packed.block.times.numpy()
    found = [None] * len(histories) if prefixes is None else [prefixes.by(weights).find(entity) for entity in entities]
    events = [(y[row, :n], kinds[row, :n], times[row, :n]) for row, n in enumerate(packed.lengths.tolist())]
    whole = _in_threads(_read, [(weights, *each, old) for each, old in zip(events, found, strict=True)])
    if prefixes is not None:
        for entity, (prefix, known) in zip(entities, whole, strict=True):
            prefixes.keep(entity, prefix, known)

    def run(row: int, plan: Plan, keys: NDArray[np.uint64]) -> Any:
        prefix, (y, kinds, times) = whole[row][0], events[row]
        return program().sample_paths(
            weights,
            prefix.keys[0],
            prefix.values[0],
            len(prefix),
            prefix.states,
            prefix.mixture,
            prefix.types,
            Last(float(y[-1]), int(kinds[-1]), float(times[-1]), float(times[0])),
            quiet[row],
            low[row],
            scale.log_mean,
            scale.log_std,
            keys,
            np.zeros(0, np.bool_) if plan.permitted is None else plan.permitted.numpy(),
            MODES[plan.mode],
            plan.draft_length,
            plan.reanchor_after,
            float("inf") if plan.horizon is None else float(plan.horizon),
            _NO_END if plan.max_events is None else plan.max_events,
            min(len(keys), -(-ROWS_AT_ONCE // (plan.draft_length + 1))),
        )

    chunks = -(-torch.get_num_threads() // len(histories))
    parts = [
        (row, plan, part)
        for plan, of_plan in zip(plans, seeds, strict=True)
        for row, keys in enumerate(row_keys(of_plan, plan.first_path, plan.paths).numpy().view(np.uint64))
        for part in np.array_split(keys, min(chunks, plan.paths))
    ]
    results = iter(_in_threads(run, parts))
    law = _law(target, [prefix for prefix, _ in whole])
    base, since_last = (packed.last.times[:, 0] + elapsed).numpy(), scale.elapsed_to_y(elapsed)
    futures = []
    for plan in plans:
        of_plan = list(islice(results, len(histories) * min(chunks, plan.paths)))
        next_event = given(law.reshape(len(histories), 1), since_last, plan.permitted).reshape(len(histories))
        futures.append(_futures(of_plan, plan, base, next_event))
    return futures


def _read(
    weights: Weights, y: NDArray[np.float64], kinds: NDArray[np.int64], times: NDArray[np.float64], old: Prefix | None
) -> tuple[Prefix, int]:
    """What the target reads of events [n], and how many of them were read in `old` already."""
    bits, nothing = events_of(y, kinds, times), _nothing(weights)
    begun = old or nothing
    known, n = begun.shared(bits), len(bits)
    if known == n == len(begun):
        return begun, known
    if known < max(len(begun), n - 1):
        # The states of the last two events are not there.
        known = max(0, min(known, n - 2))
    if not known:
        begun = nothing
    return Prefix(
        bits, *program().read_history(weights, y, kinds, times, begun.keys, begun.values, known, begun.states[1])
    ), known


def _futures(results: Sequence[Any], plan: Plan, base: NDArray[np.float64], next_event: Law) -> Futures:
    """Of the results of all histories in turn, each in as many parts."""
    figures = np.stack([result[4] for result in results])
    if figures[:, FAILED].any():
        raise SamplingError.no_law()
    counts = figures[:, (PASSES, ROW_PASSES, DRAFTED, ACCEPTED, EVENTS, REJECTED)].sum(0).tolist()
    lengths = np.concatenate([result[3] for result in results])
    width = int(lengths.max())
    leads, types, log_permitted = (
        np.concatenate([_cut(result[column], width, filler) for result in results])
        for column, filler in ((0, np.inf), (1, -1), (2, 0.0))
    )
    complete = np.ones(len(lengths), np.bool_)
    if plan.horizon is not None:
        # The last event of a path may be past the horizon, and no other.
        path, last = np.arange(len(lengths)), lengths - 1
        complete = leads[path, last] > plan.horizon
        lengths = lengths - complete
        path, last = path[complete], last[complete]
        leads[path, last], types[path, last], log_permitted[path, last] = np.inf, -1, 0.0
        width = int(lengths.max())

    def whole(values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values[:, :width]).reshape(len(base), plan.paths, width))

    leads = leads.reshape(len(base), plan.paths, -1)
    return Futures(
        times=whole((base[:, None, None] + leads).reshape(len(lengths), -1)),
        leads=whole(leads.reshape(len(lengths), -1)),
        types=whole(types),
        lengths=torch.from_numpy(lengths.reshape(len(base), plan.paths)),
        complete=torch.from_numpy(complete.reshape(len(base), plan.paths)),
        log_permitted=None if plan.permitted is None else whole(log_permitted),
        next=next_event,
        stats=Stats(*counts),
    )


def _law(target: Target, prefixes: Sequence[Prefix]) -> NativeLaw:
    """Of each history's next event, before anything is known of the time since."""
    raw = np.stack([np.concatenate((prefix.mixture, prefix.types)) for prefix in prefixes])
    law = target.head.law(torch.from_numpy(raw))
    assert isinstance(law, MixtureLaw)
    return NativeLaw(law.log_weights, law.locs, law.log_scales, law.log_types)


def _cut(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """[P, N] with N = width."""
    if array.shape[1] >= width:
        return array[:, :width]
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=filler)


def _nothing(weights: Weights) -> Prefix:
    """What was read of no history."""
    layers, width = len(weights.encoder.qkv.weight), len(weights.encoder.event.bias)
    none, law = np.zeros((1, layers, width, 0), np.float32), np.zeros(0, np.float32)
    return Prefix(np.zeros((0, 3), np.int64), none, none, np.zeros((2, width), np.float32), law, law)


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
