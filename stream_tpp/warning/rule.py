"""A warning rule: which events to be warned of, how far ahead, and when to speak up."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from stream_tpp.errors import StreamTppError


@dataclass(frozen=True)
class Rule:
    """Warn of an event of a type in `alarm` within `horizon` seconds, by its probability, the score.

    An alert is raised at a score of `threshold` or more and cleared at one below `clear` (None: half the threshold), or
    `horizon` seconds after the entity's latest warning; after it was cleared, none is raised for `cooldown` seconds. `name`
    stands in the ids of records; left empty, it is made of the alarm types and the horizon. Raises StreamTppError for values
    that make no rule.
    """

    alarm: Set[str]
    horizon: float
    threshold: float
    name: str = ""
    clear: float | None = None
    cooldown: float = 0.0

    def __post_init__(self) -> None:
        # A lone name is meant as one type, not as its letters.
        alarm = frozenset([self.alarm] if isinstance(self.alarm, str) else self.alarm)
        object.__setattr__(self, "alarm", alarm)
        if not self.name:
            object.__setattr__(self, "name", f"{'+'.join(sorted(map(str, alarm)))}-{self.horizon:g}s")
        self._check()

    @property
    def clears_below(self) -> float:
        return self.threshold / 2 if self.clear is None else self.clear

    def _check(self) -> None:
        if not self.alarm or not all(isinstance(kind, str) and kind for kind in self.alarm):
            raise StreamTppError(f"The rule {self.name!r} needs at least one alarm type, each a name.")
        if not 0 < self.horizon < math.inf:
            raise StreamTppError(f"The rule {self.name!r} needs a horizon of more than 0 s, not {self.horizon:g}.")
        if not 0 < self.threshold <= 1:
            raise StreamTppError(f"The rule {self.name!r} needs a threshold above 0, up to 1, not {self.threshold:g}.")
        if not 0 <= self.clears_below <= self.threshold:
            raise StreamTppError(
                f"The rule {self.name!r} needs a clear level between 0 and its threshold, not {self.clears_below:g}."
            )
        if not 0 <= self.cooldown < math.inf:
            raise StreamTppError(f"The rule {self.name!r} needs a cooldown of 0 s or more, not {self.cooldown:g}.")
