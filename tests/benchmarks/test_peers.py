"""The comparison with other libraries: what was measured, and on equal terms."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import peers


@pytest.fixture
def rows():
    return json.loads(peers.RESULTS.read_text())["rows"]


def test_every_sampler_was_measured_at_every_batch_it_can_do(rows):
    measured = {(row["sampler"], row["batch"]) for row in rows}
    expected = {(name, batch) for name in peers.OURS for batch in peers.BATCHES}
    expected |= {(peer.name, batch) for peer in peers.PEERS for batch in peer.batches}
    assert measured == expected


def test_all_had_the_same_size_and_the_same_histories(rows):
    assert {(row["layers"], row["heads"], row["d_model"], row["history"]) for row in rows} == {(20, 8, 64, 100)}


def test_the_thinning_of_easytpp_was_left_at_its_defaults(rows):
    settings = next(row["settings"] for row in rows if row["name"] == "easy-tpp")
    assert (settings["num_sample"], settings["num_exp"], settings["over_sample_rate"]) == (1, 500, 5)


def test_samplers_take_turns_and_medians_count():
    calls = []

    def sampler(name: str, seconds: list[float]):
        def run(batch: int, events: int) -> tuple[float, int]:
            calls.append(name)
            return seconds[calls.count(name) % 3], 100

        return run

    ours, event_by_event = peers.OURS
    found = peers.measure({ours: sampler(ours, [1, 2, 4]), event_by_event: sampler(event_by_event, [10, 20, 40])}, 1, 3, 1.0)
    assert calls == [ours, event_by_event] * 4
    assert found[ours]["events_per_s"] == 50.0
    assert found[event_by_event] == {"batch": 1, "events_a_history": 100, "events_per_s": 5.0, "ours_over_it": 10.0}
