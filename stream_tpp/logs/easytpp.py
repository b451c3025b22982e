"""EasyTPP's files (Xue et al. 2024, "EasyTPP: Towards open benchmarking temporal point processes"): JSON and pickle.

Three layouts are in use, and all are read:
- a list (or one a line) of {"seq_idx", "time_since_start": [...], "type_event": [...]};
- {"event_seqs": {"seq_0": {"event_0": {"time_since_start", "type_event"}, ...}, ...}};
- {"train" | "dev" | "test" | "devtest": [[{"time_since_start", "type_event"}, ...], ...]}, the layout of the pickles.

An entity is a sequence of the file: its seq_idx or name, or "train-7".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import orjson

from stream_tpp.event import Event, Fields
from stream_tpp.logs.file import LogError, event_at, opened
from stream_tpp.logs.plain_pickle import load_plain

_SPLITS = ("train", "dev", "devtest", "test")
_TIME, _TYPE = "time_since_start", "type_event"
_SEQUENCE = "a sequence needs lists of equal length under time_since_start and type_event"
_EVENT = "an event needs time_since_start and type_event"


def read_easytpp_json(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of an EasyTPP .json file, sequence by sequence; of `fields` only the time unit counts. Raises LogError."""
    with opened(path) as stream:
        content = stream.read()
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as whole:
        try:
            document = [orjson.loads(line) for line in content.splitlines() if line.strip()]
        except orjson.JSONDecodeError:
            raise LogError(f"{path} is not JSON: {whole}.") from None
    return _events([document] if _is_columns(document) else document, path, fields.time_unit)


def read_easytpp_pickle(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of an EasyTPP .pkl file, read without running pickle code; of `fields` only the time unit counts."""
    with opened(path) as stream:
        document = load_plain(stream, path)
    return _events(document, path, fields.time_unit)


def _events(document: object, path: Path, unit: str) -> Iterator[Event]:
    fields = Fields(entity="sequence", time=_TIME, type=_TYPE, id="", time_unit=unit)
    for entity, rows in _sequences(document, path):
        for number, row in enumerate(rows, 1):
            kind = row.get(fields.type)
            if isinstance(kind, float) and kind.is_integer():
                row = {**row, fields.type: int(kind)}
            yield event_at(f"sequence {entity}, event {number}", path, {**row, fields.entity: entity}, fields)


def _sequences(document: object, path: Path) -> Iterator[tuple[str, Iterator[dict[str, object]]]]:
    """Each sequence's name and its events, whichever layout the document has."""
    match document:
        case {"event_seqs": dict(sequences)}:
            for name, events in sequences.items():
                rows = list(events.values()) if isinstance(events, dict) else events
                yield str(name), _rows(rows, str(name), path)
        case dict(splits) if any(isinstance(splits.get(split), list) for split in _SPLITS):
            for split in _SPLITS:
                listed = splits.get(split)
                for index, events in enumerate(listed if isinstance(listed, list) else []):
                    yield f"{split}-{index}", _rows(events, f"{split}-{index}", path)
        case [*columns] if all(map(_is_columns, columns)):
            for index, sequence in enumerate(cast(list[dict[str, object]], columns)):
                name = str(sequence.get("seq_idx", index))
                yield name, _transposed(sequence, name, path)
        case _:
            raise LogError(
                f"{path} has none of EasyTPP's layouts: wanted are sequences with time_since_start and type_event, "
                f"under train, dev or test, under event_seqs, or in a list; for one event a line name the file .jsonl."
            )


def _is_columns(sequence: object) -> bool:
    return isinstance(sequence, dict) and isinstance(sequence.get("time_since_start"), list)


def _rows(events: object, name: str, path: Path) -> Iterator[dict[str, object]]:
    if not isinstance(events, list):
        raise LogError(f"{path}, sequence {name}: it is no list of events but {type(events).__name__}.")
    for number, event in enumerate(events, 1):
        if not isinstance(event, dict):
            raise LogError(f"{path}, sequence {name}, event {number}: {_EVENT}, and it is {type(event).__name__}.")
        yield event


def _transposed(sequence: dict[str, object], name: str, path: Path) -> Iterator[dict[str, object]]:
    times, types = sequence.get(_TIME), sequence.get(_TYPE)
    if not isinstance(times, list) or not isinstance(types, list) or len(times) != len(types):
        raise LogError(f"{path}, sequence {name}: {_SEQUENCE}.")
    for time, kind in zip(times, types, strict=True):
        yield {_TIME: time, _TYPE: kind}
