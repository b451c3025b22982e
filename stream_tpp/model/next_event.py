"""The law of the next event as a user asks for it: in seconds from now.

With g the density and S the survival function of the time to the next event, f(k | s) the chance of its type, all given the
history and the quiet time so far, the conditional intensity of type k at now + s is

    lambda_k(s) = g(s) f(k | s) / S(s)        (Rasmussen 2018, arXiv 1806.00221, section 2)

and the mean of a gap whose log is a mixture of normals is sum_m w_m exp(mu_m + sigma_m^2 / 2) (Shchur et al. 2020, arXiv
1909.12127), each term times its share of what lies past the quiet time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.history import History
from stream_tpp.kernels.law import GapScale, Law

_LEAST_GAP = 1e-300


@dataclass(frozen=True)
class NextEvent:
    """The next event of each of B histories. `seconds` are counted from now, [Q], the same for all; results are float64.

    law [B]: of y, given that the gap is above the quiet time; quiet [B]: seconds since the last event, 0 where that is less than
    the gap of a tie.
    """

    law: Law
    scale: GapScale
    quiet: Tensor

    @classmethod
    def after(cls, law: Law, scale: GapScale, histories: Sequence[History], now: Sequence[float | None]) -> NextEvent:
        """Of a law that is given the quiet time from each history's last event (or the start of observation) to now."""
        seconds = [_quiet(history, t) for history, t in zip(histories, now, strict=True)]
        quiet = torch.tensor(seconds, dtype=torch.float64)
        return cls(law, scale, torch.where(quiet > scale.floor, quiet, 0.0))

    def survival(self, seconds: Tensor) -> Tensor:
        """Chance that nothing happens for so long, [B, Q]."""
        return torch.exp(self.log_survival(seconds))

    def log_survival(self, seconds: Tensor) -> Tensor:
        """Its log, also where the chance itself is too small for a number."""
        gap, law = self._at(seconds)
        return torch.where(seconds > 0, law.log_survival(self._y(gap)), 0.0)

    def density(self, seconds: Tensor) -> Tensor:
        """Density of the time to the next event, a second, [B, Q]."""
        gap, law = self._at(seconds)
        return torch.exp(self._log_density(gap, law))

    def intensity(self, seconds: Tensor) -> Tensor:
        """Conditional intensity of each type at now + seconds, events a second, if nothing happens until then: [B, Q, K]."""
        gap, law = self._at(seconds)
        y = self._y(gap)
        log_total = self._log_density(gap, law) - law.log_survival(y)
        return torch.exp(log_total[..., None] + law.types_given_gap(y))

    def types(self) -> Tensor:
        """Probability of each type, whenever the event comes, [B, K]."""
        return torch.exp(self.law.types())

    def quantile(self, levels: Tensor) -> Tensor:
        """Seconds within which the next event comes with probability `levels` (Q numbers in (0, 1)), [B, Q].

        inf where float64 has no number for it. Raises StreamTppError for another level.
        """
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise StreamTppError(f"Quantiles are asked for at {levels.tolist()}: give levels above 0 and below 1.")
        return (self.scale.to_gap(self.law.quantile(levels)) - self.quiet[:, None]).clamp(min=0.0)

    def median(self) -> Tensor:
        """Seconds, [B]: a number also where the mean is none."""
        return self.quantile(torch.tensor([0.5], dtype=torch.float64))[:, 0]

    def mean(self) -> Tensor:
        """Expected seconds to the next event, [B].

        inf where it is infinite (the tail of a binned law can be so heavy) or above 1.8e308: see `log_mean` and `median`.
        """
        return torch.exp(self.log_mean())

    def log_mean(self) -> Tensor:
        """Log of the expected seconds, [B]: finite for every mixture; inf where the mean is infinite."""
        log_gap = self.scale.log_mean + self.law.log_moment(self.scale.log_std)
        return log_gap + torch.log(-torch.expm1(torch.log(self.quiet) - log_gap))

    def _at(self, seconds: Tensor) -> tuple[Tensor, Law]:
        """Gaps [B, Q], and the law at each."""
        if not bool((seconds >= 0).all()):
            raise StreamTppError("The time from now is negative or no number: the next event comes after now.")
        return self.quiet[:, None] + seconds.to(torch.float64), self.law.expand_tries(len(seconds))

    def _y(self, gap: Tensor) -> Tensor:
        return (torch.log(gap.clamp(min=_LEAST_GAP)) - self.scale.log_mean) / self.scale.log_std

    def _log_density(self, gap: Tensor, law: Law) -> Tensor:
        """g(gap) = g(y) / (log_std gap)."""
        return law.log_prob_gap(self._y(gap)) - torch.log(self.scale.log_std * gap.clamp(min=_LEAST_GAP))


def _quiet(history: History, now: float | None) -> float:
    last = float(history.times[-1]) if len(history) else history.start
    return 0.0 if now is None or last is None else now - last
