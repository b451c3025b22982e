"""Alerts: from a score that wavers to a state that does not."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stream_tpp.warning.rule import Rule

Transition = Literal["raised", "cleared"]


class AlertState(NamedTuple):
    """Of one entity and rule: whether an alert stands, and the time (seconds) of the last change, None for never."""

    raised: bool = False
    since: float | None = None


def decide(state: AlertState, rule: Rule, score: float, at: float) -> tuple[AlertState, Transition | None]:
    """The state after a warning of this score at this time, and the change it made, if any.

    Between the level that clears and the threshold nothing changes (hysteresis); for `rule.cooldown` seconds after an
    alert was cleared none is raised.
    """
    if state.raised:
        return (AlertState(False, at), "cleared") if score < rule.clears_below else (state, None)
    cooling = state.since is not None and at - state.since < rule.cooldown
    return (AlertState(True, at), "raised") if score >= rule.threshold and not cooling else (state, None)
