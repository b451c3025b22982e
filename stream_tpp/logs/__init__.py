"""Event logs: one format a file, each a reader that yields events in the order of its file.

`read_log` picks the reader by the file's suffix, with or without `.gz` behind it; the word `flights` stands for the real
flights of 2013 in the demo extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import cast

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields

__all__ = ["FLIGHTS", "read_log"]

FLIGHTS = "flights"

# Imported when first used: a reader brings its own parser along.
_READERS = {
    ".jsonl": "stream_tpp.logs.jsonl:read_jsonl",
    ".csv": "stream_tpp.logs.csv:read_csv",
    ".parquet": "stream_tpp.logs.parquet:read_parquet",
    ".json": "stream_tpp.logs.easytpp:read_easytpp_json",
    ".pkl": "stream_tpp.logs.easytpp:read_easytpp_pickle",
    ".pickle": "stream_tpp.logs.easytpp:read_easytpp_pickle",
    ".xes": "stream_tpp.logs.xes:read_xes",
}


def read_log(path: str | Path, fields: Fields | None = None) -> Iterator[Event]:
    """Events of a log, in the order of the file (not sorted by time).

    A bad row ends the reading with a StreamTppError that names file, place, fault and mend; so does a file that is missing,
    damaged or of an unknown format. `fields` names the columns of .jsonl, .csv, .parquet and .xes; EasyTPP's files and the
    flights have names of their own.
    """
    fields = fields or Fields()
    if str(path) == FLIGHTS:
        from stream_tpp.logs.flights import read_flights

        return iter(read_flights().events)
    path = Path(path)
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if suffix not in _READERS:
        raise StreamTppError(
            f"{path} is no log of a known format: its name must end in {', '.join(_READERS)} (also with .gz), "
            f"or be the word {FLIGHTS}."
        )
    if not path.is_file():
        raise StreamTppError(f"There is no log file {path}: check the path.")
    module, _, reader = _READERS[suffix].partition(":")
    read = cast(Callable[[Path, Fields], Iterator[Event]], getattr(import_module(module), reader))
    return read(path, fields)
