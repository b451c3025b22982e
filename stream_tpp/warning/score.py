"""The score of a warning rule: the probability of an alarm event within the rule's horizon, from simulated futures.

Not by counting the paths that hit an alarm: paths are simulated with the alarm types suppressed, and a path weighs
w = prod (1 - f(alarm types | history)) over its events within the horizon, the chance that none of them was an alarm. The
score is 1 - E[w] (Rao-Blackwell): the same expectation as the count's, less variance, and no rare hit needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stream_tpp.sampling.futures import Futures

_Z95 = 1.959964
_QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Score:
    """P(alarm within the horizon), with the 95 % interval of its Monte Carlo error, from so many paths.

    lead_quantiles: seconds from now to the first alarm, given that there is one: {"0.1": ..., "0.5": ..., "0.9": ...};
    empty where no path gives an alarm any chance.
    """

    rule: str
    score: float
    low: float
    high: float
    lead_quantiles: dict[str, float]
    paths: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the suppressed paths of one history say: log f(permitted) and leads (seconds) of their events, [P, N]."""

    log_permitted: Tensor
    leads: Tensor

    @classmethod
    def of(cls, futures: Futures, row: int) -> Evidence:
        """Of history `row` of futures that were sampled with the alarm types suppressed."""
        assert futures.log_permitted is not None
        return cls(futures.log_permitted[row], futures.leads[row])

    def score(self, rule: str) -> Score:
        """The score so far. No event on any path leaves the interval that n trials without a hit leave."""
        log_quiet = self.log_permitted.cumsum(-1)
        weights = torch.exp(log_quiet[:, -1]) if log_quiet.shape[1] else torch.ones(len(log_quiet), dtype=torch.float64)
        n = len(weights)
        mean = float(weights.mean())
        margin = _Z95 * float(weights.std()) / math.sqrt(n) if n > 1 else 1.0
        low, high = max(0.0, 1 - mean - margin), min(1.0, 1 - mean + margin)
        if not bool(torch.isfinite(self.leads).any()):
            high = 1 - 0.05 ** (1 / n)
        return Score(rule, 1 - mean, low, high, self._lead_quantiles(log_quiet), n)

    def _lead_quantiles(self, log_quiet: Tensor) -> dict[str, float]:
        quiet_before = torch.exp(log_quiet - self.log_permitted)
        mass = (quiet_before * -torch.expm1(self.log_permitted)).flatten()
        leads = self.leads.flatten()
        here = mass > 0
        if not bool(here.any()):
            return {}
        order = torch.argsort(leads[here])
        cumulative = mass[here][order].cumsum(0)
        index = torch.searchsorted(cumulative, cumulative[-1] * torch.tensor(_QUANTILES, dtype=torch.float64))
        chosen = leads[here][order][index.clamp(max=len(order) - 1)].tolist()
        return {str(q): lead for q, lead in zip(_QUANTILES, chosen, strict=True)}


def pooled(evidence: Sequence[Evidence]) -> Evidence:
    """More paths of the same history, put together."""
    width = max(part.leads.shape[1] for part in evidence)

    def padded(t: Tensor, filler: float) -> Tensor:
        return torch.nn.functional.pad(t, (0, width - t.shape[1]), value=filler)

    return Evidence(
        torch.cat([padded(part.log_permitted, 0.0) for part in evidence]),
        torch.cat([padded(part.leads, torch.inf) for part in evidence]),
    )
