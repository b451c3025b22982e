"""JSON lines: one object a line."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from stream_tpp.event import Event, Fields, InvalidEvent, decode_event
from stream_tpp.logs.file import bad_row, opened


def read_jsonl(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of a .jsonl file; empty lines are passed over. Raises LogError at the first bad line."""
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if not text.strip():
                continue
            try:
                yield decode_event(text, fields, max_bytes=sys.maxsize)
            except InvalidEvent as invalid:
                raise bad_row(f"line {number}", path, invalid) from None
