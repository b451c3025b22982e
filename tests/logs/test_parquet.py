import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs.parquet import read_parquet


def read(folder: Path, fields: Fields | None = None, **columns: Any) -> list[Event]:
    path = folder / "log.parquet"
    parquet.write_table(arrow.table(columns), path, row_group_size=2)
    return list(read_parquet(path, fields or Fields()))


def test_rows_become_events_and_other_columns_are_passed_over(tmp_path: Path) -> None:
    assert read(
        tmp_path,
        Fields(entity="device", time_unit="ms"),
        device=[1, 2, 3],
        time=[500, 1500, 2500],
        type=arrow.array(["x", "y", "x"]).dictionary_encode(),
        id=["i", None, "j"],
        nested=[{"a": 1}] * 3,
    ) == [Event("1", 0.5, "x", "i"), Event("2", 1.5, "y"), Event("3", 2.5, "x", "j")]


@pytest.mark.parametrize(
    "times",
    [
        arrow.array([1357035600250000001], arrow.timestamp("ns")),
        arrow.array([1357035600250], arrow.timestamp("ms", tz="America/New_York")),
        arrow.array([datetime(2013, 1, 1, 12, 20, 0, 250_000, timezone(timedelta(hours=2)))]),
        arrow.array([datetime(2013, 1, 1, 10, 20, 0, 250_000)]),
        arrow.array([1357035600.25]),
        arrow.array([Decimal("1357035600.25")]),
        arrow.array(["2013-01-01T10:20:00.25Z"]),
    ],
)
def test_times_are_read_whatever_their_column_is(tmp_path: Path, times: Any) -> None:
    assert read(tmp_path, entity=["a"], time=times, type=["x"]) == [Event("a", 1357035600.25, "x")]


def test_a_date_is_its_midnight_in_utc(tmp_path: Path) -> None:
    assert read(tmp_path, entity=["a"], time=[date(2013, 1, 1)], type=["x"])[0].time == 1356998400.0


def test_a_bad_row_is_named_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match=r"log\.parquet, row 5: The record has no entity"):
        read(tmp_path, entity=["a", "a", "a", "a", None], time=[1, 2, 3, 4, 5], type=["x"] * 5)


def test_a_missing_column_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match="has no column 'time' for the time: name one of entity, at, type with --time"):
        read(tmp_path, entity=["a"], at=[1], type=["x"])


def test_what_is_no_parquet_file_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"entity,time,type")
    with pytest.raises(StreamTppError, match=r"log\.parquet is no readable Parquet file"):
        list(read_parquet(path, Fields()))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StreamTppError, match=r"needs pyarrow: pip install 'stream-tpp\[parquet\]'"):
        list(read_parquet(tmp_path / "log.parquet", Fields()))
