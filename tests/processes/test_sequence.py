import numpy as np
import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.processes import EventSequence, Window


@pytest.mark.parametrize(
    ("times", "types"),
    [
        ([2.0, 1.0], [0, 0]),
        ([1.0, np.nan], [0, 0]),
        ([1.0, 11.0], [0, 0]),
        ([1.0, 2.0], [0]),
        ([1.0, 2.0], [0, -1]),
    ],
    ids=["out of order", "not finite", "after the window", "a type is missing", "negative type"],
)
def test_what_is_no_sequence_is_refused(times: list[float], types: list[int]) -> None:
    with pytest.raises(StreamTppError):
        EventSequence(np.array(times), np.array(types), Window(0.0, 10.0))


def test_a_window_does_not_end_before_it_starts() -> None:
    with pytest.raises(StreamTppError):
        Window(2.0, 1.0)


def test_the_first_events_are_a_sequence_whose_window_ends_at_the_last_of_them() -> None:
    whole = EventSequence(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), Window(0.5, 10.0))
    two = whole.first(2)
    assert two.times.tolist() == [1.0, 2.0]
    assert two.window == Window(0.5, 2.0)
