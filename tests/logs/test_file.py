import gzip
from pathlib import Path

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs import read_log

LINE = b'{"entity": "a", "time": 1, "type": "x"}\n'


def sentence(path: str | Path) -> str:
    with pytest.raises(StreamTppError) as caught:
        list(read_log(path))
    return str(caught.value)


def test_the_suffix_picks_the_reader_with_or_without_gz(tmp_path: Path) -> None:
    plain, packed = tmp_path / "log.JSONL", tmp_path / "log.jsonl.gz"
    plain.write_bytes(LINE)
    packed.write_bytes(gzip.compress(LINE))
    assert list(read_log(plain)) == list(read_log(str(packed), Fields())) == [Event("a", 1.0, "x")]


def test_a_missing_file_is_said_before_the_first_event_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match=r"There is no log file .*gone\.csv: check the path\."):
        read_log(tmp_path / "gone.csv")


def test_an_unknown_suffix_names_those_that_are_known(tmp_path: Path) -> None:
    assert ".jsonl, .csv, .parquet, .json, .pkl, .pickle, .xes" in sentence(tmp_path / "log.txt")
    assert "the word flights" in sentence("flight")


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log.csv").mkdir()
    assert "There is no log file" in sentence(tmp_path / "log.csv")


@pytest.mark.parametrize(
    "content",
    [LINE, gzip.compress(LINE * 1000)[:-9], gzip.compress(LINE)[:15] + b"\xff" * 9],
    ids=["plain", "cut off", "overwritten"],
)
def test_a_damaged_gzip_file_ends_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(content)
    assert sentence(path).endswith("fetch or pack it again.")
