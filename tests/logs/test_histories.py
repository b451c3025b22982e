"""A log as the histories that a model reads."""

from stream_tpp.event import Event
from stream_tpp.logs.histories import gather_histories


def test_events_of_types_that_the_model_does_not_know_are_left_out_and_counted() -> None:
    events = [Event("x", 3.0, "late"), Event("x", 1.0, "hijacked"), Event("x", 2.0, "on_time"), Event("y", 1.0, "hijacked")]
    found = gather_histories(events, ("late", "on_time"))
    assert found.unknown == 2
    assert list(found.histories) == ["x"]
    assert found.histories["x"].times.tolist() == [2.0, 3.0]
    assert found.histories["x"].types.tolist() == [1, 0]


def test_events_that_share_a_time_stay_in_their_order_and_later_ones_can_be_left_out() -> None:
    events = [Event("x", 2.0, "b"), Event("x", 2.0, "a"), Event("x", 1.0, "a"), Event("x", 2.5, "a")]
    history = gather_histories(events, ("a", "b"), until=2.0).histories["x"]
    assert (history.times.tolist(), history.types.tolist()) == ([1.0, 2.0, 2.0], [0, 1, 0])
