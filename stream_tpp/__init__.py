"""Forecasts and early warnings from streams of events.

The names below are imported when they are first used, so that `import stream_tpp` costs neither PyTorch nor Faust.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stream_tpp.event import Event as Event
    from stream_tpp.model.checkpoint import load as load
    from stream_tpp.topologies.plug import plug as plug
    from stream_tpp.warning.rule import Rule as Rule

_HOMES = {
    "Event": "stream_tpp.event",
    "Rule": "stream_tpp.warning.rule",
    "load": "stream_tpp.model.checkpoint",
    "plug": "stream_tpp.topologies.plug",
}

__all__ = ["Event", "Rule", "load", "plug"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
