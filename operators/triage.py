"""Triage: which entities an alert may concern next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from stream_tpp.warning.rule import Rule
from stream_tpp.warning.score import Score


class Triage:
    """Remembers the entities whose last score, by some rule, was not below the level that clears an alert.

    For these an alert stands, or the score is near the threshold that raises one.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._levels = {rule.name: rule.clears_below for rule in rules}
        self._urgent: set[Hashable] = set()

    def note(self, entity: Hashable, scores: Iterable[Score]) -> None:
        """The latest scores of the entity."""
        if any(score.score >= self._levels[score.rule] for score in scores if score.rule in self._levels):
            self._urgent.add(entity)
        else:
            self._urgent.discard(entity)

    def urgent(self, entity: Hashable) -> bool:
        return entity in self._urgent
