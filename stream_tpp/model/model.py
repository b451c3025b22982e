"""A model: vocabulary, gap scale, target and draft, as trained together and kept in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, Law
from stream_tpp.model.config import ModelConfig
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.histories import pack
from stream_tpp.model.next_event import NextEvent
from stream_tpp.model.target import Target
from stream_tpp.sampling.draft_length import DraftLength, sample_by
from stream_tpp.sampling.futures import Futures
from stream_tpp.sampling.plan import Plan
from stream_tpp.sampling.sampler import Backend, sample

# Keeps the seeds of a call's histories far apart, whatever seed the next call has.
_NEXT_SEED = 0x9E3779B97F4A7C15


@dataclass
class Model:
    """types: the vocabulary, type k of the tensors is types[k]. window: events of history that the target was trained to read.

    facts: how it was trained and what that gave (JSON values). version: names the weights, "" before they are saved.
    """

    config: ModelConfig
    types: tuple[str, ...]
    scale: GapScale
    window: int
    target: Target
    draft: NeuralDraft[Any]
    facts: dict[str, Any] = field(default_factory=dict)
    version: str = ""

    @classmethod
    def fresh(cls, config: ModelConfig, types: tuple[str, ...], scale: GapScale, window: int) -> Model:
        """An untrained model, in evaluation mode."""
        assert len(types) == config.target.types
        target = Target(config.target).eval()
        return cls(config, types, scale, window, target, build_draft(config, target, scale).eval())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.target.parameters()).device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move the weights. Raises StreamTppError for a dtype that is not float32."""
        for network in (self.target, self.draft):
            network.to(device, dtype)
        return self

    def sample(
        self,
        histories: Sequence[History],
        *,
        now: float | Sequence[float] | None = None,
        horizon: float | None = None,
        max_events: int | None = None,
        paths: int = 1,
        seed: int = 0,
        draft_length: int | DraftLength = 4,
        mode: str = "joint",
        backend: Backend = "auto",
    ) -> Futures:
        """`paths` futures of each history, for `horizon` seconds or `max_events` events, whichever ends first.

        now (seconds; one for all or one each): nothing has happened between a history's last event and it; None: now is the
        last event. The same (seed, place of a history in `histories`) gives the same futures. draft_length 0 is plain
        autoregression; a policy (`stream_tpp.sampling.draft_length`) chooses for the call, and the futures are then the same for
        the same choice. backend: see `stream_tpp.sampling.sampler.sample`. Raises StreamTppError where an argument or a time
        cannot be, SamplingError where there is no law.
        """

        def run(plan: Plan) -> Futures:
            return sample(
                self.target,
                self.draft,
                histories,
                plan,
                scale=self.scale,
                types=len(self.types),
                window=self.window,
                seeds=[seed + place * _NEXT_SEED for place in range(len(histories))],
                now=list(now) if isinstance(now, Sequence) else [now] * len(histories),
                device=self.device,
                backend=backend,
            )

        plan = Plan(paths=paths, horizon=horizon, max_events=max_events, mode=mode)
        return sample_by(draft_length, plan, len(histories) * paths, self.device, run)

    def next_event(self, histories: Sequence[History], *, now: float | Sequence[float] | None = None) -> NextEvent:
        """Intensity, survival, quantiles and mean of the time to each history's next event, in seconds from now.

        `now` as for `sample`; one pass of the target, nothing is simulated. Raises as `sample` does.
        """
        futures = self.sample(histories, now=now, max_events=1, draft_length=0)
        times = list(now) if isinstance(now, Sequence) else [now] * len(histories)
        return NextEvent.after(futures.next, self.scale, histories, times)

    @torch.inference_mode()
    def law(self, histories: Sequence[History]) -> Law:
        """The law [B] of the event that follows each history (in y, see `scale`), at the time of its last event."""
        packed = pack(histories, self.scale, len(self.types), self.window).to(self.device)
        law: Law = self.target(packed.block)[0]
        return law.at(packed.lengths - 1)
