from pathlib import Path

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs.csv import read_csv


def read(folder: Path, text: str | bytes, fields: Fields | None = None) -> list[Event]:
    path = folder / "log.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_csv(path, fields or Fields()))


def test_rows_become_events_under_the_names_of_the_header(tmp_path: Path) -> None:
    text = '\ufeffid,device,at,kind,note\n1,d 7,1.5,"x, y",\n,d 8,2,z,"two\nlines"\n\n'
    assert read(tmp_path, text, Fields(entity="device", time="at", type="kind")) == [
        Event("d 7", 1.5, "x, y", "1"),
        Event("d 8", 2.0, "z", None),
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_header_tells_what_parts_the_cells(tmp_path: Path, delimiter: str) -> None:
    text = "entity,time,type\r\na,1,x\r\n".replace(",", delimiter)
    assert read(tmp_path, text) == [Event("a", 1.0, "x")]


def test_times_are_numbers_in_their_unit_or_iso_text(tmp_path: Path) -> None:
    text = "entity,time,type\na,1357035600250000000,x\na,2013-01-01T10:20:00.250Z,x\n"
    assert [event.time for event in read(tmp_path, text, Fields(time_unit="ns"))] == [1357035600.25, 1357035600.25]


def test_unit_iso_reads_digits_as_a_date(tmp_path: Path) -> None:
    assert read(tmp_path, "entity,time,type\na,20130101,x\n", Fields(time_unit="iso"))[0].time == 1356998400.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no column 'entity' for the entity: name one of its (no) columns with --entity."),
        ("case,time,type\n", "has no column 'entity' for the entity: name one of case, time, type with --entity."),
        ("entity,time,type\na,1,x\nb,2\n", "line 3: 2 cells under a header of 3: mend the row."),
        ("entity,time,type\na,1,x\n,2,y\n", "line 3: The record has no entity (field 'entity')."),
        ("entity,time,type\na,,x\n", "line 2: The record has no time (field 'time')."),
        ("entity,time,type\na,nan,x\n", "line 2: The time is nan."),
        ("entity,time,type\na,-inf,x\n", "line 2: The time is -inf."),
        ("entity,time,type\na,1_000,x\n", "line 2: The time is text but not ISO 8601: '1_000'."),
        ("entity,time,type\na,1357035600250,x\n", "line 2: The time 1357035600250 is 1.35704e+12 s"),
        ('entity,time,type,note\na,1,x,"two\nlines"\na,?,x,\n', "line 4: The time is text"),
        (b"entity,time,type\n\xff,1,x\n", "is not UTF-8"),
        ("entity,time,type\n" + "a" * 200_000 + ",1,x\n", "is not CSV (field larger than field limit"),
    ],
)
def test_a_bad_row_is_named_with_its_fault(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(StreamTppError) as caught:
        read(tmp_path, text)
    assert sentence in str(caught.value)
    assert "log.csv" in str(caught.value)
