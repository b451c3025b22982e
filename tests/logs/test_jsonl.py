from pathlib import Path

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs.jsonl import read_jsonl


def written(folder: Path, content: bytes) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    return path


def test_each_line_is_an_event_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        b'\xef\xbb\xbf{"case": 2, "at": "2013-01-01T00:00:00Z", "what": "x", "id": "i"}\r\n'
        b'\n   \n{"case": "a", "at": 5000, "what": "y"}',
    )
    events = list(read_jsonl(path, Fields(entity="case", time="at", type="what", time_unit="ms")))
    assert events == [Event("2", 1356998400.0, "x", "i"), Event("a", 5.0, "y")]


def test_a_record_larger_than_a_stream_would_take_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"entity": "a", "time": 1, "type": "x", "note": "' + b"n" * 900_000 + b'"}')
    assert list(read_jsonl(path, Fields())) == [Event("a", 1.0, "x")]


@pytest.mark.parametrize(
    ("line", "fault", "mend"),
    [
        (b'{"entity": "a"', "line 2: The record is not JSON", "Mend the row or take it out."),
        (b'{"time": 1, "type": "x"}', "line 2: The record has no entity", "Name the column with --entity"),
        (b'{"entity": "a", "time": "?", "type": "x"}', "line 2: The time is text", "--time-unit (s, ms, us, ns, iso)"),
        (b'{"entity": "a", "time": 1e15, "type": "x"}', "line 2: The time 1000000000000000.0 is", "--time-unit"),
        (b"\xff", "line 2: The record is not JSON", "Mend the row"),
    ],
)
def test_a_bad_line_is_named_with_its_fault_and_mend(tmp_path: Path, line: bytes, fault: str, mend: str) -> None:
    path = written(tmp_path, b'{"entity": "a", "time": 1, "type": "x"}\n' + line)
    events = read_jsonl(path, Fields())
    assert next(events) == Event("a", 1.0, "x")
    with pytest.raises(StreamTppError) as caught:
        next(events)
    assert str(caught.value).startswith(f"{path}, {fault}")
    assert mend in str(caught.value)
