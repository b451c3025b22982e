"""Alerts are raised once and cleared once, however often their warnings come."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.operators.alerts import Alerts, States
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.driver import Table
from stream_tpp.operators.histories import NotCommitted
from stream_tpp.operators.records import Record, Source
from stream_tpp.warning.rule import Rule

RULE = Rule({"bad"}, horizon=60, threshold=0.5, name="r", clear=0.3)
WARNING = "a:events:0:0:r"


def warning(offset: int, score: float, entity: str = "a", rule: str = "r", at: float | None = None) -> bytes:
    return orjson.dumps(
        {
            "id": f"{entity}:events:0:{offset}:{rule}",
            "entity": entity,
            "made_at": float(offset) if at is None else at,
            "source": {"topic": "events", "partition": 0, "offset": offset},
            "rule": rule,
            "score": score,
        }
    )


class Topic:
    """The warnings topic with the operator on it."""

    def __init__(self, rules: list[Rule] | None = None) -> None:
        self.rules = rules or [RULE]
        self.table = Table()
        self.records: list[Record] = []
        self.committed = 1 << 62
        self.start()

    def start(self) -> None:
        self.alerts = Alerts(Table(self.table.changelog), self.rules, Counters())
        self.table = self.alerts.table

    def add(self, value: bytes | None, **headers: bytes) -> Record:
        record = Record(Source("warnings", 0, len(self.records)), 0.0, b"a", value, headers)
        self.records.append(record)
        return record

    def send(self, value: bytes | None, **headers: bytes) -> list[dict]:
        return self.deliver(self.add(value, **headers))

    def deliver(self, record: Record) -> list[dict]:
        return [
            orjson.loads(output.value)
            for output in self.alerts.receive(record, committed=self.committed)
            if output.channel == "alerts"
        ]


def test_an_alert_says_which_warning_raised_it() -> None:
    (alert,) = Topic().send(warning(7, 0.6))
    assert alert == {
        "id": "a:events:0:7:r:raised",
        "entity": "a",
        "rule": "r",
        "state": "raised",
        "at": 7.0,
        "score": 0.6,
        "warning": "a:events:0:7:r",
    }


def test_a_standing_alert_is_not_raised_again() -> None:
    topic = Topic()
    alerts = [topic.send(warning(offset, score)) for offset, score in enumerate([0.6, 0.7, 0.4, 0.2, 0.6])]
    states = [alert["state"] for some in alerts for alert in some]
    assert states == ["raised", "cleared", "raised"]


def test_entities_and_rules_have_alerts_of_their_own() -> None:
    topic = Topic([RULE, Rule({"bad"}, 60, 0.5, name="s")])
    assert topic.send(warning(0, 0.6))
    assert topic.send(warning(0, 0.6, rule="s"))
    assert topic.send(warning(1, 0.6, entity="b"))
    assert topic.send(warning(2, 0.6)) == []


def test_the_table_is_written_only_while_an_alert_stands_and_when_it_changes() -> None:
    topic = Topic()
    for offset, score in enumerate([0.1, 0.4, 0.6, 0.7, 0.5, 0.1, 0.2]):
        topic.send(warning(offset, score))
    assert len(topic.table.changelog) == 4


def test_an_alert_lapses_when_another_entity_is_heard_of_after_the_horizon() -> None:
    topic = Topic()
    topic.send(warning(0, 0.6, at=100.0))
    topic.send(warning(1, 0.4, at=130.0))
    assert topic.send(warning(2, 0.1, entity="b", at=190.0)) == []
    assert topic.send(warning(3, 0.1, entity="b", at=190.5)) == [
        {
            "id": "a:events:0:1:r:lapsed",
            "entity": "a",
            "rule": "r",
            "state": "cleared",
            "at": 190.0,
            "score": 0.4,
            "warning": "a:events:0:1:r",
        }
    ]
    assert topic.send(warning(4, 0.1, entity="b", at=500.0)) == []


def test_an_entity_that_returns_after_the_horizon_has_its_alert_raised_anew() -> None:
    topic = Topic()
    topic.send(warning(0, 0.6, at=100.0))
    alerts = topic.send(warning(1, 0.6, at=161.0))
    assert [(alert["state"], alert["at"]) for alert in alerts] == [("cleared", 160.0), ("raised", 161.0)]
    # Written twice, each makes what it made: the end of the first alert was the work of no warning of its own.
    assert topic.send(warning(0, 0.6, at=100.0)) == [dict(alerts[1], id="a:events:0:0:r:raised", at=100.0, warning=WARNING)]
    assert topic.send(warning(1, 0.6, at=161.0)) == alerts[1:]


def test_partitions_have_clocks_of_their_own_and_names_may_be_long() -> None:
    topic, name = Topic(), "x" * 10_000
    topic.send(warning(0, 0.6, entity=name, at=100.0))
    elsewhere = Record(Source("warnings", 1, 0), 0.0, b"b", warning(0, 0.1, entity="b", at=1e6))
    assert topic.alerts.receive(elsewhere, committed=0) == []
    (alert,) = topic.send(warning(1, 0.1, entity="b", at=1e6))
    assert (alert["entity"], alert["id"]) == (name, f"{name}:events:0:0:r:lapsed")


warnings = st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.sampled_from([0.1, 0.4, 0.6]), st.booleans())


@given(st.lists(warnings, max_size=40), st.data())
def test_alerts_are_the_same_whatever_crashes_and_whatever_was_lost_of_the_table(log, data) -> None:
    """Times go on, one entity lies behind by more than a horizon; some warnings are written twice."""
    values, now = list[bytes](), 0.0
    for offset, (entity, later, score, twice) in enumerate(log):
        now += later
        values += [warning(offset, score, entity, at=now - 90.0 * (entity == "c"))] * (1 + twice)
    untroubled, troubled = Topic(), Topic()
    troubled.committed = 0
    expected = [untroubled.send(value) for value in values]
    assert [at_leisure(troubled, troubled.add(value)) for value in values] == expected
    for _ in range(3):
        # What lies before the last commit has arrived; of later writes to the table some may not have.
        troubled.committed = data.draw(st.integers(troubled.committed, len(values)))
        arrived = sum(States.unpack(value).mark.read < troubled.committed for _, value in troubled.table.changelog)
        troubled.table.changelog[data.draw(st.integers(arrived, len(troubled.table.changelog))) :] = []
        troubled.start()
        for record in troubled.records[troubled.committed :]:
            assert by_id(at_leisure(troubled, record)) == by_id(expected[record.source.offset])
    assert untroubled.table == troubled.table


def at_leisure(topic: Topic, record: Record) -> list[dict]:
    """What comes of the record, after as many commits as it takes."""
    while True:
        try:
            return topic.deliver(record)
        except NotCommitted as waits:
            topic.committed = waits.offset + 1


def by_id(alerts: list[dict]) -> dict[str, dict]:
    return {alert["id"]: alert for alert in alerts}


def test_warnings_delivered_again_after_a_crash_bring_forth_the_same_alerts() -> None:
    topic = Topic()
    scores = [0.6, 0.1, 0.6, 0.4, 0.1, 0.1, 0.7]
    first = [alert for offset, score in enumerate(scores) for alert in topic.send(warning(offset, score))]
    topic.start()
    again = [alert for record in topic.records for alert in topic.deliver(record)]
    assert again == first
    assert len(first) == 5


def test_a_warning_written_twice_changes_nothing_the_second_time() -> None:
    topic = Topic()
    first = [*topic.send(warning(0, 0.6)), *topic.send(warning(1, 0.1))]
    # The event at offset 0 is delivered again: its warning comes a second time, after the alert was cleared.
    assert topic.send(warning(0, 0.6)) == first[:1]
    assert topic.send(warning(1, 0.1)) == first[1:]
    assert topic.send(warning(2, 0.1)) == []
    assert len(set(topic.table.changelog)) == 2


def test_a_warning_that_stands_for_earlier_ones_decides_for_them() -> None:
    topic = Topic()
    first = topic.send(warning(3, 0.4), stands_for=b"1,2")
    # After a crash the earlier ones are written after all. The alert agent may crash, too, and read all of it again.
    first += topic.send(warning(1, 0.9)) + topic.send(warning(2, 0.9)) + topic.send(warning(3, 0.4)) + topic.send(warning(4, 0.6))
    assert [alert["id"] for alert in first] == ["a:events:0:4:r:raised"]
    topic.start()
    assert [alert for record in topic.records for alert in topic.deliver(record)] == first


def test_an_alert_that_flaps_waits_for_a_commit_before_a_change_is_forgotten() -> None:
    topic = Topic()
    topic.committed = 0
    for offset in range(8):
        topic.send(warning(offset, 0.6 if offset % 2 == 0 else 0.1))
    before = list(topic.table.changelog)
    with pytest.raises(NotCommitted) as waits:
        topic.send(warning(8, 0.6))
    assert (waits.value.offset, topic.table.changelog) == (0, before)
    topic.committed = 1
    assert [alert["state"] for alert in topic.deliver(topic.records[-1])] == ["raised"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "not_a_warning"),
        (b"7", "not_a_warning"),
        (b"{}", "not_a_warning"),
        (warning(0, 0.6).replace(b'"score":0.6', b'"score":null'), "not_a_warning"),
        (warning(0, 0.6).replace(b'"offset":0', b'"offset":-1'), "not_a_warning"),
        (warning(0, 0.6).replace(b'"offset":0', b'"offset":"0"'), "not_a_warning"),
        (warning(0, 0.6, rule="gone"), "unknown_rule"),
    ],
)
def test_what_is_no_warning_of_ours_is_a_dead_letter(value, reason) -> None:
    topic = Topic()
    (letter,) = topic.alerts.receive(Record(Source("warnings", 2, 9), 0.0, b"k", value), committed=0)
    assert letter.channel == "dead_letters"
    assert letter.value == value
    assert (letter.headers["reason"], letter.headers["topic"]) == (reason.encode(), b"warnings")
    assert topic.send(warning(0, 0.6))


def test_warnings_of_a_driven_topology_become_alerts(drive, event) -> None:
    driver = drive()
    for time, type in enumerate(["bad", "ok", "ok", "ok", "bad", "bad", "bad"]):
        driver.send(event("a", float(time), type))
    assert [orjson.loads(output.value)["state"] for output in driver.of("alerts")] == ["raised", "cleared", "raised"]
