"""The comparison of kept and forgotten readings: what was measured, and on equal terms."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "warm.json"


@pytest.mark.parametrize("layers", [3, 20])
def test_the_three_ways_answered_the_same_and_read_less_and_less(layers: int) -> None:
    rows = {row["way"]: row for row in json.loads(RESULTS.read_text())["rows"] if row["layers"] == layers}
    assert {row["forecasts"] for row in rows.values()} == {400}
    read = {way: row["events_read_per_forecast"] for way, row in rows.items()}
    # A forecast reads once for its rules, too: anew costs no more than the readings for a rule's further paths.
    assert read["anew"] > read["cold"] > 5 * read["warm"]
