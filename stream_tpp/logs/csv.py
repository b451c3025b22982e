"""CSV with a header, parted by commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from stream_tpp.event import Event, Fields, number_or_text
from stream_tpp.logs.file import LogError, event_at, opened


def read_csv(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of a .csv file; an empty cell is an absent field. Raises LogError at the first bad row."""
    with opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            yield from _events(text, path, fields)
        except UnicodeDecodeError as error:
            raise LogError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8.") from None
        except csv.Error as error:
            raise LogError(f"{path} is not CSV ({error}): check its quotes.") from None


def _events(text: io.TextIOWrapper, path: Path, fields: Fields) -> Iterator[Event]:
    header_line = text.readline()
    delimiter = max(",;\t", key=header_line.count)
    header = [name.strip() for name in next(csv.reader([header_line], delimiter=delimiter), [])]
    _check(header, path, fields)
    rows = csv.reader(text, delimiter=delimiter)
    for row in rows:
        if not row:
            continue
        line = rows.line_num + 1  # the header was read before
        if len(row) != len(header):
            raise LogError(f"{path}, line {line}: {len(row)} cells under a header of {len(header)}: mend the row.")
        record: dict[str, object] = {name: cell for name, cell in zip(header, row, strict=True) if cell.strip()}
        if fields.time in record and fields.time_unit != "iso":
            record[fields.time] = number_or_text(str(record[fields.time]))
        yield event_at(f"line {line}", path, record, fields)


def _check(header: list[str], path: Path, fields: Fields) -> None:
    for part, column in (("entity", fields.entity), ("time", fields.time), ("type", fields.type)):
        if column not in header:
            raise LogError(
                f"{path} has no column {column!r} for the {part}: name one of {', '.join(header) or 'its (no) columns'} "
                f"with --{part}."
            )
