import json
import math

import numpy as np
import pytest

from stream_tpp.cli.output import progress, show


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    show({"events": np.int64(3), "times": np.array([1.5]), "nan": math.nan}, "3 events", as_json=True)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"events": 3, "times": [1.5], "nan": None}
    assert captured.err == ""


def test_text_is_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    show({"events": 3}, "3 events", as_json=False)
    assert capsys.readouterr().out == "3 events\n"


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Publishing", 10) as done:
        done(5)
    assert capsys.readouterr() == ("", "")
