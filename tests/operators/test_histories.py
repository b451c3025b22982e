"""What a worker that comes back after a crash does: exactly what it would have done."""

import random

import pytest

from stream_tpp.event import Event, InvalidEvent
from stream_tpp.operators.driver import Table
from stream_tpp.operators.histories import Histories, layout_of
from stream_tpp.operators.records import Source


def stream(count: int, seed: int, entities: int = 3) -> list[tuple[str, float, str, str]]:
    """Events of a few entities: some late, some too late, some repeated."""
    draw = random.Random(seed)
    return [
        (
            f"e{draw.randrange(entities)}",
            number + draw.choice([0.0, 0.0, -3.0, -30.0]),
            draw.choice(["ok", "bad", "odd"]),
            f"id-{draw.randrange(count)}",
        )
        for number in range(count)
    ]


def run(driver, events, event) -> None:
    for entity, time, type, id in events:
        driver.send(event(entity, time, type, id=id))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("batch", [1, 7])
def test_an_event_absorbed_but_unanswered_before_a_crash_gives_the_same_records_after_it(drive, event, seed, batch) -> None:
    events = stream(60, seed)
    options = {"window": 4, "slack": 3, "grace": 10}
    untroubled = drive(**options)
    run(untroubled, events, event)

    crashing = drive(**options, batch=batch, commits=False)
    crashes = random.Random(seed).sample(range(60), 6)
    for number, (entity, time, type, id) in enumerate(events):
        crashing.send(event(entity, time, type, id=id))
        if number in crashes:
            crashing.crash()
        if number % 11 == 0:
            crashing.commit()
    crashing.flush()
    crashing.crash()

    # Each record of the untroubled run is there, and whatever else is there is a repeat of one.
    written = {(output.channel, output.key, output.value, str(output.headers)) for output in crashing.outputs}
    assert written == {(output.channel, output.key, output.value, str(output.headers)) for output in untroubled.outputs}
    assert crashing.histories_table == untroubled.histories_table


def test_redelivery_writes_the_same_slots_again(drive, event) -> None:
    driver = drive(commits=False)
    for time in range(5):
        driver.send(event("a", float(time)))
    first = list(driver.histories_table.changelog)
    driver.crash()
    assert driver.histories_table.changelog == first + first
    assert driver.counters.redelivered == 5


def test_a_slot_that_a_changelog_lost_is_written_again_when_its_event_is_redelivered() -> None:
    on_disk = Table()
    for offset in range(2):
        Histories(on_disk, window=4, slack=3).absorb(Event("a", 1.0, "ok"), 0, Source("events", 0, offset), committed=0)
    lost = on_disk.changelog.pop()
    Histories(on_disk, window=4, slack=3).absorb(Event("a", 1.0, "ok"), 0, Source("events", 0, 1), committed=0)
    assert on_disk.changelog[-1] == lost


def test_a_table_keeps_one_slot_for_each_event_of_the_ring(drive, event) -> None:
    driver = drive(window=4, slack=3, reorder=0)
    for time in range(50):
        driver.send(event("a", float(time)))
    assert len(driver.histories_table) == 7
    assert {len(value) for value in driver.histories_table.values()} == {26}


def test_an_event_of_an_entity_with_a_12_byte_name_costs_44_bytes_of_changelog(drive, event) -> None:
    driver = drive(window=256)
    for time in range(600):
        driver.send(event("twelve-bytes", float(time), id=str(time)))
    writes = driver.histories_table.changelog
    assert len(writes) == 600
    assert sum(len(key) + len(value) for key, value in writes) / 600 == 44


def test_more_events_of_an_entity_than_the_slack_wait_for_a_commit(drive, event) -> None:
    driver = drive(window=4, slack=3, reorder=2, commits=False)
    for time in range(40):
        driver.send(event("a", float(time)))
    first = list(driver.outputs)
    driver.crash()
    again = driver.outputs[len(first) :]
    assert 0 < len(again) < len(first)
    assert {output.value for output in again} <= {output.value for output in first}


def test_an_entity_that_was_evicted_returns_with_its_history(drive, event) -> None:
    driver = drive(most_rings=1)
    driver.send(event("a", 1.0))
    driver.send(event("b", 1.0))
    driver.send(event("a", 2.0))
    assert driver.forecaster.requests[-1].history.times.tolist() == [1.0, 2.0]


def test_an_entity_spread_over_partitions_has_a_history_in_each(drive, event) -> None:
    driver = drive()
    for partition in (0, 1, 0):
        driver.send(event("a", 1.0), partition=partition)
    assert [len(request.history) for request in driver.forecaster.requests] == [1, 1, 2]


@pytest.mark.parametrize("entity", ["x" * 10_000, "\0", "a\0b", "日本 — ünïcode 🛫", "e:f:0:1"])
def test_an_entity_may_have_any_name(drive, event, entity) -> None:
    driver = drive()
    driver.send(event(entity, 1.0))
    outputs = driver.send(event(entity, 2.0))
    assert outputs[0].key == entity.encode()
    assert len(driver.forecaster.requests[-1].history) == 2
    driver.crash()
    driver.send(event(entity, 3.0))
    assert len(driver.forecaster.requests[-1].history) == 3


def test_a_topic_made_anew_under_old_histories_is_noticed() -> None:
    histories = Histories({}, window=4, slack=3)
    for offset in (100, 101):
        histories.absorb(Event("a", float(offset), "ok"), 0, Source("events", 0, offset), committed=0)
    with pytest.raises(InvalidEvent, match="the topic was made anew") as refused:
        histories.absorb(Event("a", 102.0, "ok"), 0, Source("events", 0, 0), committed=0)
    assert refused.value.reason == "stale_offset"


def test_the_layout_changes_with_all_that_slots_depend_on() -> None:
    sizes = [(256, 64, 8), (255, 64, 8), (256, 65, 8), (256, 64, 9)]
    layouts = {layout_of(*size, types) for size in sizes for types in (["a", "b"], ["b", "a"])}
    assert len(layouts) == 8
