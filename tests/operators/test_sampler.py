"""The sampler thread answers whatever happens to the engine."""

import queue
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from stream_tpp.forecast import Forecast, Request
from stream_tpp.history import History
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.sampler import Sampler

WAIT = 10.0


def request(entity: str) -> Request:
    return Request(entity, History(np.array([1.0]), np.array([0])), now=1.0, seed=7)


class Desk:
    """A sampler and what it delivered."""

    def __init__(self, engine, **options) -> None:
        self.counters = Counters()
        self.delivered: queue.Queue = queue.Queue()
        self.sampler: Sampler[str] = Sampler(engine, self.take, self.counters, **options)

    def take(self, forecaster, answers) -> None:
        self.delivered.put([(ask.token, forecast) for ask, forecast in answers])

    def ask(self, *entities: str) -> None:
        for entity in entities:
            self.sampler.submit(entity, entity, request(entity))

    def answers(self, count: int) -> list[tuple[str, Forecast | Exception]]:
        found: list[tuple[str, Forecast | Exception]] = []
        while len(found) < count:
            found += self.delivered.get(timeout=WAIT)
        return found


@pytest.fixture
def desk() -> Iterator:
    desks: list[Desk] = []

    def build(engine, **options) -> Desk:
        desks.append(Desk(engine, **options))
        return desks[-1]

    yield build
    for each in desks:
        each.sampler.stop(WAIT)


def test_what_waits_together_is_answered_in_one_batch_in_order(engine, desk) -> None:
    asked = engine()
    it = desk(asked, max_batch=3)
    it.ask(*"abcde")
    it.sampler.start()
    assert [entity for entity, _ in it.answers(5)] == list("abcde")
    assert asked.batches == [["a", "b", "c"], ["d", "e"]]


def test_a_lone_request_does_not_wait_for_a_batch_to_fill(engine, desk) -> None:
    it = desk(engine(), max_batch=1000, max_wait=0.001)
    it.sampler.start()
    it.ask("a")
    assert len(it.answers(1)) == 1


def test_only_the_guilty_request_is_answered_by_an_exception(engine, desk) -> None:
    it = desk(engine(guilty=frozenset({"b"})))
    it.ask(*"abc")
    it.sampler.start()
    answers = dict(it.answers(3))
    assert isinstance(answers["b"], RuntimeError)
    assert isinstance(answers["a"], Forecast)
    assert isinstance(answers["c"], Forecast)
    assert it.sampler.alive


def test_an_engine_that_answers_too_few_is_asked_one_by_one(engine, desk, monkeypatch) -> None:
    whole = engine.forecast
    monkeypatch.setattr(engine, "forecast", lambda self, requests: whole(self, requests)[:1])
    it = desk(engine())
    it.ask(*"abc")
    it.sampler.start()
    assert all(isinstance(answer, Forecast) for _, answer in it.answers(3))
    assert it.counters.sampler_failures == 1


def test_a_closed_event_loop_does_not_end_the_thread(engine) -> None:
    taken = threading.Event()
    calls: list[int] = []

    def deliver(forecaster, answers: list) -> None:
        calls.append(len(answers))
        if len(calls) == 1:
            raise RuntimeError("Event loop is closed")
        taken.set()

    sampler: Sampler[str] = Sampler(engine(), deliver, Counters(), max_batch=1)
    sampler.start()
    sampler.submit("a", "a", request("a"))
    sampler.submit("b", "b", request("b"))
    assert taken.wait(WAIT)
    sampler.stop()


def test_what_was_asked_before_the_stop_is_answered_and_a_new_thread_takes_over(engine, desk) -> None:
    it = desk(engine(), max_batch=2)
    it.sampler.start()
    it.ask(*"abc")
    it.sampler.stop(WAIT)
    assert [entity for entity, _ in it.answers(3)] == list("abc")
    assert not it.sampler.alive
    it.ask("d")
    it.sampler.start()
    assert [entity for entity, _ in it.answers(1)] == ["d"]


def test_a_new_forecaster_answers_from_the_next_batch_on(engine) -> None:
    answered: queue.Queue = queue.Queue()
    sampler: Sampler[str] = Sampler(engine(version="old"), lambda by, answers: answered.put(by.version), Counters(), max_batch=1)
    sampler.submit("a", "a", request("a"))
    sampler.start()
    assert answered.get(timeout=WAIT) == "old"
    sampler.forecaster = engine(version="new")
    sampler.submit("a", "a", request("a"))
    assert answered.get(timeout=WAIT) == "new"
    sampler.stop(WAIT)
