"""XES, the event logs of process mining (IEEE 1849): a trace is an entity, its name the entity's name.

Parsed as a stream. A document type declaration ends the reading: XES has none, and without one no entity can be declared
that would expand without bound or read another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from stream_tpp.event import Event, Fields
from stream_tpp.logs.file import LogError, event_at, opened

_CHUNK = 1 << 16
# The names that XES's standard extensions give, where the caller names no others.
_STANDARD = Fields(entity="concept:name", time="time:timestamp", type="concept:name", id="identity:id")
_ATTRIBUTES = frozenset(("string", "date", "int", "float", "boolean", "id"))


def read_xes(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of a .xes file, trace by trace. `fields` names attributes: the trace's for the entity, the event's for the
    rest; left at their defaults they are concept:name, time:timestamp, concept:name and identity:id. Raises LogError."""
    keys = _attributes(fields)
    with opened(path) as stream:
        traces = _Traces(path, keys)
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = traces.refuse
        parser.StartElementHandler = lambda name, attributes: traces.start(name, attributes, parser.CurrentLineNumber)
        parser.EndElementHandler = lambda name: traces.end()
        try:
            while chunk := stream.read(_CHUNK):
                parser.Parse(chunk, False)
                yield from traces.taken(keys)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise LogError(f"{path}, line {error.lineno}: it is not XML: {expat.errors.messages[error.code]}.") from None
        yield from traces.taken(keys)


def _attributes(fields: Fields) -> Fields:
    plain = Fields()
    return Fields(
        entity=fields.entity if fields.entity != plain.entity else _STANDARD.entity,
        time=fields.time if fields.time != plain.time else _STANDARD.time,
        type=fields.type if fields.type != plain.type else _STANDARD.type,
        id=fields.id if fields.id != plain.id else _STANDARD.id,
    )


@dataclass
class _Node:
    """An open trace or event: its own attributes, and the events of a trace with the lines they began on."""

    line: int
    values: dict[str, str] = field(default_factory=dict)
    events: list[_Node] = field(default_factory=list)


class _Traces:
    """Gathers the attributes that stand directly in a trace or an event; whatever else XES nests is passed over."""

    def __init__(self, path: Path, keys: Fields) -> None:
        self.path = path
        self.keys = keys
        self.open: list[str] = []
        self.trace: _Node | None = None
        self.event: _Node | None = None
        self.done: list[_Node] = []

    def refuse(self, *_: object) -> None:
        raise LogError(f"{self.path} declares a document type (DOCTYPE), which XES has no use for: take it out.")

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        name = name.rpartition(":")[2]
        parent = self.open[-1] if self.open else None
        self.open.append(name)
        if name == "trace" and parent == "log":
            self.trace = _Node(line)
        elif name == "event" and parent == "trace" and self.trace is not None:
            self.event = _Node(line)
            self.trace.events.append(self.event)
        elif name in _ATTRIBUTES and parent in ("trace", "event") and "key" in attributes and "value" in attributes:
            node = self.event if parent == "event" else self.trace
            if node is not None:
                node.values[attributes["key"]] = attributes["value"]

    def end(self) -> None:
        name = self.open.pop()
        if name == "event":
            self.event = None
        elif name == "trace" and self.trace is not None:
            self.done.append(self.trace)
            self.trace = None

    def taken(self, keys: Fields) -> Iterator[Event]:
        """Events of the traces that have ended since the last call."""
        done, self.done = self.done, []
        for trace in done:
            for event in trace.events:
                record: dict[str, object] = {
                    "entity": trace.values.get(keys.entity),
                    "time": event.values.get(keys.time),
                    "type": event.values.get(keys.type),
                    "id": event.values.get(keys.id),
                }
                yield event_at(f"line {event.line}", self.path, record, Fields(time_unit="iso"))
