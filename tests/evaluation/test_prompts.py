import numpy as np
import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.prompts import Prompt, choose_prompts
from stream_tpp.history import History


def history(*times: float) -> History:
    return History(np.array(times), np.arange(len(times)) % 2)


HISTORIES = {"a": history(1.0, 2.0, 5.0, 5.0, 9.0), "b": history(0.0, 10.0), "c": history()}


def test_prompts_are_beginnings_of_histories_with_nothing_happening_until_now() -> None:
    for prompt in choose_prompts(HISTORIES, 200, seed=1):
        whole = HISTORIES["a"] if prompt.history.times[0] == 1.0 else HISTORIES["b"]
        length = len(prompt.history)
        np.testing.assert_array_equal(prompt.history.times, whole.times[:length])
        following = whole.times[length] if length < len(whole) else np.inf
        assert prompt.history.times[-1] <= prompt.now <= following


def test_prompts_take_turns_among_entities_and_many_have_been_quiet() -> None:
    prompts = choose_prompts(HISTORIES, 200, seed=2)
    assert sum(prompt.history.times[0] == 1.0 for prompt in prompts) == 100
    quiet = sum(prompt.now > prompt.history.times[-1] for prompt in prompts)
    assert 40 < quiet < 100


def test_the_same_seed_chooses_the_same_prompts() -> None:
    first, again = (choose_prompts(HISTORIES, 20, seed=3) for _ in range(2))
    assert [prompt.now for prompt in first] == [prompt.now for prompt in again]


def test_a_log_without_known_events_gives_no_prompts() -> None:
    with pytest.raises(StreamTppError, match="no history"):
        choose_prompts({"c": history()}, 5, seed=0)


def test_the_beginning_of_a_prompt_stands_at_its_last_event() -> None:
    early = Prompt(HISTORIES["a"], 12.0).first(2)
    assert early.now == 2.0
    assert len(early.history) == 2
    assert Prompt(HISTORIES["b"], 12.0).first(2).now == 12.0
