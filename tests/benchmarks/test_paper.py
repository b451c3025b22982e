"""The page of the paper's tables."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import paper_tables  # noqa: E402


@pytest.fixture
def document():
    return json.loads(paper_tables.RESULTS.read_text())


def test_the_page_shows_what_was_measured(document):
    assert paper_tables.tables(document) in paper_tables.PAGE.read_text()


def test_every_mode_of_every_row_was_compared_at_20_000_events(document):
    for row in document["rows"]:
        assert set(row["modes"]) == {"joint", "sequential", "hierarchical", "block"}
        assert min(min(found["events"]) for found in row["modes"].values()) >= 20_000


def test_samples_are_as_close_as_the_page_claims(document):
    assert max(max(found["js"].values()) for row in document["rows"] for found in row["modes"].values()) <= paper_tables.MOST_JS


def test_a_divergence_above_the_claim_is_not_counted_as_keeping_it(document):
    rows = document["rows"][:1]
    rows[0]["modes"]["joint"]["js"]["gap"] = 0.01
    assert "Of 4 comparisons, 3 have" in paper_tables.exactness_in_words(rows)
    assert "the largest is 0.01000 (gap" in paper_tables.exactness_in_words(rows)


def test_rows_that_were_not_measured_are_named(document):
    document["rows"] = [row for row in document["rows"] if row["dataset"] != "Hawkes"]
    assert "Hawkes SAHP" in paper_tables.tables(document).rpartition("Not measured yet: ")[2]
