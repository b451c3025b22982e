"""Parquet, through pyarrow (the extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs.file import LogError, event_at, opened


def read_parquet(path: Path, fields: Fields) -> Iterator[Event]:
    """Events of a .parquet file. A timestamp column brings its own unit (UTC where it has no zone); numbers are in
    `fields.time_unit`. Raises LogError at the first bad row, StreamTppError where pyarrow is missing."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise StreamTppError(f"Reading {path} needs pyarrow: pip install 'stream-tpp[parquet]'.") from None
    with opened(path) as stream:
        try:
            table = parquet.ParquetFile(stream)
            columns = _columns(table.schema_arrow.names, path, fields)
            first_row = 1
            for batch in table.iter_batches(batch_size=8192, columns=columns):
                yield from _events(arrow, batch, first_row, path, fields)
                first_row += batch.num_rows
        except arrow.ArrowException as error:
            raise LogError(f"{path} is no readable Parquet file: {str(error).splitlines()[0]}") from None


def _columns(names: list[str], path: Path, fields: Fields) -> list[str]:
    for part, column in (("entity", fields.entity), ("time", fields.time), ("type", fields.type)):
        if column not in names:
            raise LogError(f"{path} has no column {column!r} for the {part}: name one of {', '.join(names)} with --{part}.")
    wanted = dict.fromkeys((fields.entity, fields.time, fields.type, fields.id))
    return [column for column in wanted if column in names]


def _events(arrow: Any, batch: Any, first_row: int, path: Path, fields: Fields) -> Iterator[Event]:
    time = batch.column(fields.time)
    if arrow.types.is_date(time.type):
        time = time.cast(arrow.timestamp("s"))
    if arrow.types.is_timestamp(time.type):
        # As whole numbers in the column's own unit: nanoseconds do not fit a datetime.
        fields = replace(fields, time_unit=time.type.unit)
        time = time.cast(arrow.int64())
    elif arrow.types.is_decimal(time.type):
        time = time.cast(arrow.float64())
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names} | {fields.time: time.to_pylist()}
    for place, values in enumerate(zip(*columns.values(), strict=True), first_row):
        yield event_at(f"row {place}", path, dict(zip(columns, values, strict=True)), fields)
