"""The sampler in PyTorch, the reference: speculative sampling of futures, and autoregression as the loop with nothing drafted.

A round: the draft proposes gamma events after the pending one; one pass of the target over the pending and the drafted
events gives its law at gamma + 1 places; verification says how many drafted events stand and draws the event after them,
which is the next round's pending event; caches roll back to what stood. Source: TPP-SD (arXiv 2507.09252), with the
corrections that exactness asks for (see `verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from stream_tpp.history import History
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.kernels.random import DRAFT, row_keys, uniform
from stream_tpp.kernels.residual import Draws, require_finite
from stream_tpp.kernels.rollout import STABLE_ROWS
from stream_tpp.kernels.verification import MODES, Verdict, bonus
from stream_tpp.model.histories import Histories, pack
from stream_tpp.model.precision import outside_autocast
from stream_tpp.model.protocols import Draft, Rollout, Target
from stream_tpp.sampling.futures import Futures, Stats, gather_events
from stream_tpp.sampling.plan import Plan, elapsed_since, given, observed

CPU = torch.device("cpu")


@torch.inference_mode()
@outside_autocast
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
) -> Futures:
    """See `stream_tpp.sampling.sampler.sample`, of which this is the reference, on any device and for any model."""
    permitted = None if plan.permitted is None else plan.permitted.to(device)
    packed = pack([observed(h, t) for h, t in zip(histories, now, strict=True)], scale, types, window, multiple=16).to(device)
    elapsed = elapsed_since(packed.last.times[:, 0], now)
    cache, hidden = target.prefill(packed, plan.paths)
    draft_state = draft.begin(packed, hidden)
    rows = _Rows.begin(packed, elapsed, seeds, plan)
    y_elapsed: Tensor | None = scale.elapsed_to_y(elapsed)[:, None].expand(-1, plan.paths)
    rounds: list[_Generated] = []
    stats = Stats()
    while True:
        rollout = _propose(draft, draft_state, rows, plan, len(rounds), scale, y_elapsed, permitted)
        drafted = rollout.block if rollout else None
        p, hidden = target.extend(cache, rows.pending.followed_by(drafted) if drafted else rows.pending)
        p = given(p, y_elapsed, permitted)
        if not rounds:
            next_event = (
                p.reshape(-1, p.shape[-1])
                .rows(torch.arange(len(histories), device=device) * plan.paths)
                .first(1)
                .reshape(len(histories))
            )
        limits = rows.limits(plan)
        verdict = _verify(p, rollout, limits, Draws(rows.keys.reshape(-1), len(rounds)), plan.mode)
        events = rows.generate(drafted, verdict, p, scale, plan)
        rounds.append(events)
        _count(stats, rows.running, limits, verdict.accepted, events)
        cache.keep(torch.where(rows.running, verdict.accepted + 1, 0))
        if rollout:
            draft_state = draft.commit(rollout, verdict.accepted, hidden)
        rows = rows.after(events, verdict, limits, plan)
        y_elapsed = None
        active = int(rows.running.sum(1).max())
        if not active:
            return _futures(rounds, plan, packed.last.times[:, 0] + elapsed, next_event, stats)
        active = max(active, -(-STABLE_ROWS // len(histories)))
        if 2 * active <= rows.running.shape[1]:
            chosen = torch.argsort((~rows.running).to(torch.int8), dim=1, stable=True)[:, :active]
            cache.choose(chosen)
            draft_state = draft.choose(draft_state, chosen)
            rows = rows.choose(chosen)


@dataclass(frozen=True)
class _Generated:
    """Events of one round, [B, P, gamma + 1], of the paths of index `path` int64 [B, P]; `valid` says which exist."""

    path: Tensor
    y: Tensor
    types: Tensor
    leads: Tensor
    log_permitted: Tensor
    valid: Tensor


@dataclass(frozen=True)
class _Rows:
    """The paths in flight, [B, P]. clock: seconds from now of the pending event; count: events generated; since: events
    generated since one was drawn from the target's own law; base [B]: now, in absolute seconds."""

    pending: Block
    keys: Tensor
    path: Tensor
    clock: Tensor
    count: Tensor
    since: Tensor
    running: Tensor
    base: Tensor

    @classmethod
    def begin(cls, packed: Histories, elapsed: Tensor, seeds: Sequence[int], plan: Plan) -> _Rows:
        shape, device = (len(elapsed), plan.paths), elapsed.device
        last = packed.last
        return cls(
            pending=last.map(lambda t: t[:, None].expand(*shape, 1)),
            keys=row_keys(seeds, plan.first_path, plan.paths, device),
            path=torch.arange(plan.paths, device=device).expand(shape),
            clock=(-elapsed)[:, None].expand(shape),
            count=torch.zeros(shape, dtype=torch.int64, device=device),
            since=torch.zeros(shape, dtype=torch.int64, device=device),
            running=torch.ones(shape, dtype=torch.bool, device=device),
            base=last.times[:, 0] + elapsed,
        )

    def limits(self, plan: Plan) -> Tensor:
        """How many drafted events count in the next round, int64 [B, P]; a rollout may hold more. None do where it is the
        target's turn, and one fewer than the path may still hold at most, since an event of the target's follows them.

        Speculative sampling draws from the target's law at any draft length. So it does at one that is chosen anew for each
        row and round, as long as the past chooses it (a stopping time): here the number of events that the path has, and
        nothing that is drafted after them.
        """
        limits = torch.where(self.since >= plan.reanchor_after, 0, plan.draft_length)
        if plan.max_events is None:
            return limits
        return torch.minimum(limits, (plan.max_events - 1 - self.count).clamp(min=0))

    def generate(self, drafted: Block | None, verdict: Verdict, p: Law, scale: GapScale, plan: Plan) -> _Generated:
        """The accepted events and the one after them; `valid` leaves out what follows an event past the horizon."""
        y, types = verdict.y[..., None], verdict.k[..., None]
        place = torch.arange(1 if drafted is None else drafted.y.shape[-1] + 1, device=y.device)
        if drafted is not None:
            stands = place[:-1] < verdict.accepted[..., None]
            y = torch.cat((torch.where(stands, drafted.y, y), y), -1)
            types = torch.cat((torch.where(stands, drafted.types, types), types), -1)
        valid = self.running[..., None] & (place <= verdict.accepted[..., None])
        leads = (self.clock[..., None] + scale.to_gap(y).cumsum(-1)).clamp(min=0.0)
        if plan.horizon is not None:
            before = torch.cat((self.clock[..., None], leads[..., :-1]), -1)
            valid = valid & (before <= plan.horizon)
        return _Generated(self.path, y, types, leads, p.log_permitted(y), valid)

    def after(self, events: _Generated, verdict: Verdict, limits: Tensor, plan: Plan) -> _Rows:
        """The rows before the next round: the event after the accepted ones is pending."""
        place = verdict.accepted[..., None]
        clock = events.leads.gather(-1, place)[..., 0]
        count = self.count + events.valid.sum(-1)
        running = self.running
        if plan.horizon is not None:
            running = running & (clock <= plan.horizon)
        if plan.max_events is not None:
            running = running & (count < plan.max_events)
        times = (self.base[:, None] + clock)[..., None]
        return replace(
            self,
            pending=Block(verdict.y[..., None], verdict.k[..., None], times, self.pending.origin),
            clock=clock,
            count=count,
            since=torch.where(verdict.accepted == limits, 0, self.since + verdict.accepted + 1),
            running=running,
        )

    def choose(self, paths: Tensor) -> _Rows:
        """The rows of index `paths` int64 [B, P'] alone."""
        return replace(
            self,
            pending=self.pending.map(lambda t: t.gather(1, paths[..., None])),
            **{name: getattr(self, name).gather(1, paths) for name in _PER_ROW},
        )


_PER_ROW = ("keys", "path", "clock", "count", "since", "running")


def _propose(
    draft: Draft,
    state: Any,
    rows: _Rows,
    plan: Plan,
    number: int,
    scale: GapScale,
    y_elapsed: Tensor | None,
    permitted: Tensor | None,
) -> Rollout | None:
    if plan.draft_length == 0:
        return None
    u = uniform(rows.keys, number, DRAFT, 3 * plan.draft_length)
    u = u.reshape(*rows.keys.shape, plan.draft_length, 3)
    return draft.rollout(state, rows.pending, u, scale, y_elapsed, permitted)


def _verify(p: Law, rollout: Rollout | None, limits: Tensor, draws: Draws, mode: str) -> Verdict:
    """The mode's verdict on rows [B, P] side by side; with nothing drafted, a draw from p."""
    shape = limits.shape
    p = p.reshape(limits.numel(), p.shape[-1])
    if rollout is None:
        verdict = bonus(p, limits.reshape(-1), draws)
    else:
        places = limits.numel(), rollout.block.y.shape[-1]
        y, types = rollout.block.y.reshape(places), rollout.block.types.reshape(places)
        verdict = MODES[mode](p, rollout.law.reshape(*places), y, types, limits.reshape(-1), draws)
    require_finite(verdict.y)
    return Verdict(*(t.reshape(shape) for t in verdict))


def _count(stats: Stats, running: Tensor, limits: Tensor, accepted: Tensor, events: _Generated) -> None:
    stats.target_passes += 1
    stats.row_passes += int(running.sum())
    stats.drafted += int(limits[running].sum())
    stats.accepted += int(accepted[running].sum())
    stats.events += int(events.valid.sum())
    stats.rejected += int((accepted < limits)[running].sum())


def _futures(rounds: list[_Generated], plan: Plan, base: Tensor, next_event: Law, stats: Stats) -> Futures:
    """Put the events of all rounds in order, path by path, and drop those past the horizon."""
    batch, width = len(base), rounds[0].valid.shape[-1]

    def whole(name: str) -> Tensor:
        values = torch.zeros(batch, plan.paths, len(rounds) * width, dtype=getattr(rounds[0], name).dtype, device=base.device)
        for number, events in enumerate(rounds):
            columns = values[..., number * width : (number + 1) * width]
            columns.scatter_(1, events.path[..., None].expand(-1, -1, width), getattr(events, name))
        return values

    leads, valid = whole("leads"), whole("valid")
    inside = valid if plan.horizon is None else valid & (leads <= plan.horizon)
    past_horizon = (valid & ~inside).any(-1)
    lengths, (leads, types, log_permitted) = gather_events(
        inside, (leads, torch.inf), (whole("types"), -1), (whole("log_permitted"), 0.0)
    )
    complete = past_horizon if plan.horizon is not None else torch.ones_like(past_horizon)
    return Futures(
        times=(base[:, None, None] + leads).cpu(),
        leads=leads.cpu(),
        types=types.cpu(),
        lengths=lengths.cpu(),
        complete=complete.cpu(),
        log_permitted=None if plan.permitted is None else log_permitted.cpu(),
        next=next_event.to(CPU),
        stats=stats,
    )
