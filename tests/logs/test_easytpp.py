import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs import read_log

COLUMNS = [
    {"dim_process": 2, "seq_len": 2, "seq_idx": 7, "time_since_start": [0.0, 1.5], "type_event": [0, 1]},
    {"dim_process": 2, "seq_len": 1, "seq_idx": 8, "time_since_start": [2.5], "type_event": [1.0]},
]
ROWS = [[{"time_since_start": 0.0, "type_event": 0}, {"time_since_start": 1.5, "type_event": 1, "idx_event": 1}]]


def read(folder: Path, document: Any, **fields: Any) -> list[Event]:
    path = folder / "train.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return list(read_log(path, Fields(**fields)))


def test_a_list_of_sequences_with_columns(tmp_path: Path) -> None:
    expected = [Event("7", 0.0, "0"), Event("7", 1.5, "1"), Event("8", 2.5, "1")]
    assert read(tmp_path, COLUMNS) == expected
    assert read(tmp_path, "\n".join(map(json.dumps, COLUMNS))) == expected
    assert read(tmp_path, COLUMNS[0]) == expected[:2]


def test_sequences_under_event_seqs(tmp_path: Path) -> None:
    events = {f"event_{i}": event for i, event in enumerate(ROWS[0])}
    document = {"dim_process": 2, "num_seqs": 1, "event_seqs": {"seq_0": events}}
    assert read(tmp_path, document) == [Event("seq_0", 0.0, "0"), Event("seq_0", 1.5, "1")]


def test_sequences_of_every_split_are_told_apart(tmp_path: Path) -> None:
    document = {"dim_process": 2, "train": ROWS, "dev": [], "test": ROWS, "args": None}
    assert {event.entity for event in read(tmp_path, document)} == {"train-0", "test-0"}


def test_the_time_unit_counts(tmp_path: Path) -> None:
    assert read(tmp_path, COLUMNS, time_unit="ms")[1].time == 0.0015


def test_a_pickle_of_numpy_numbers_reads_as_the_same_events(tmp_path: Path) -> None:
    rows = [[{"time_since_start": np.float64(1.5), "type_event": np.int64(1), "time_since_last_event": np.float32(0)}]]
    path = tmp_path / "test.pkl"
    path.write_bytes(pickle.dumps({"dim_process": 2, "test": rows}))
    assert list(read_log(path)) == [Event("test-0", 1.5, "1")]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("{", "is not JSON"),
        ({"a": 1}, "has none of EasyTPP's layouts"),
        ([{"entity": "a", "time": 1, "type": "x"}], "for one event a line name the file .jsonl"),
        ([{"time_since_start": [1, 2], "type_event": [1]}], "sequence 0: a sequence needs lists of equal length"),
        ({"train": [7]}, "sequence train-0: it is no list of events but int."),
        ({"train": [[7]]}, "sequence train-0, event 1: an event needs time_since_start and type_event, and it is int."),
        ({"train": [[{"type_event": 1}]]}, "sequence train-0, event 1: The record has no time (field 'time_since_start')."),
        ([{"time_since_start": [1, None], "type_event": [1, 1]}], "sequence 0, event 2: The record has no time"),
    ],
)
def test_a_fault_is_named_by_sequence_and_event(tmp_path: Path, document: Any, sentence: str) -> None:
    with pytest.raises(StreamTppError) as caught:
        read(tmp_path, document)
    assert sentence in str(caught.value)
    assert "train.json" in str(caught.value)
