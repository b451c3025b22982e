"""Who is asked about next, while more wait than the engine can take."""

import itertools
import random
from itertools import pairwise

import numpy as np

from stream_tpp.forecast import Request
from stream_tpp.history import History
from stream_tpp.operators.line import Ask, Line
from stream_tpp.operators.triage import Triage
from stream_tpp.warning.rule import Rule
from stream_tpp.warning.score import Score

numbers = itertools.count()


def put(line: Line[int], *entities: str) -> None:
    for entity, number in zip(entities, numbers, strict=False):
        line.put(entity, number, Request(entity, History(np.array([1.0]), np.array([0])), now=1.0, seed=number))


def names(batch: list[Ask[int]]) -> str:
    return "".join(ask.request.entity for ask in batch)


def test_while_the_engine_keeps_up_every_request_is_asked_in_order() -> None:
    line: Line[int] = Line(4, conflate=True)
    put(line, *"aaba")
    assert names(line.take()) == "aaba"


def test_when_it_is_behind_the_newest_of_an_entity_takes_the_place_of_the_one_that_waits() -> None:
    line: Line[int] = Line(2, conflate=True)
    put(line, *"abcaba")
    first, second = line.take(), line.take()
    assert (names(first), names(second)) == ("ab", "c")
    a, b = first
    assert (len(a.stands_for), len(b.stands_for)) == (2, 1)
    assert a.stands_for == sorted(a.stands_for)
    assert max(a.stands_for) < a.token == a.request.seed


def test_without_conflation_every_request_is_asked() -> None:
    line: Line[int] = Line(2)
    put(line, *"abaaa")
    assert names(line.take() + line.take() + line.take()) == "abaaa"


def test_the_urgent_go_first_and_a_quarter_of_the_places_is_for_those_who_waited_longest() -> None:
    line: Line[int] = Line(4, urgent=lambda entity: entity in "xyz")
    put(line, *"abcdexyz")
    assert names(line.take()) == "axyz"
    assert names(line.take()) == "bcde"


def test_among_urgent_newcomers_without_end_nobody_waits_for_ever() -> None:
    line: Line[int] = Line(4, urgent=lambda entity: entity == "x")
    put(line, *"abcdefgh")
    batches = []
    for _ in range(8):
        put(line, *"xxxx")
        batches.append(names(line.take()))
    assert [batch[0] for batch in batches] == list("abcdefgh")


def test_requests_of_an_entity_stay_in_order_whatever_is_urgent() -> None:
    draw = random.Random(0)
    urgent: set[object] = set()
    line: Line[int] = Line(5, conflate=True, urgent=urgent.__contains__)
    tokens: dict[str, list[int]] = {name: [] for name in "abcdefghij"}
    for _ in range(300):
        put(line, *draw.choices(list(tokens), k=draw.randrange(12)))
        (urgent.add if draw.random() < 0.5 else urgent.discard)(draw.choice(list(tokens)))
        if len(line):
            for ask in line.take():
                tokens[ask.request.entity] += [*ask.stands_for, ask.token]
    while len(line):
        for ask in line.take():
            tokens[ask.request.entity] += [*ask.stands_for, ask.token]
    assert all(first < second for asked in tokens.values() for first, second in pairwise(asked))


def test_entities_near_an_alert_are_urgent_until_their_score_falls() -> None:
    triage = Triage([Rule({"bad"}, 60, 0.5, name="r", clear=0.3)])
    for score, urgent in ((0.1, False), (0.3, True), (0.9, True), (0.2, False)):
        triage.note("a", [Score("r", score, 0.0, 1.0, {}, 8), Score("no rule of ours", 1.0, 0.0, 1.0, {}, 8)])
        assert triage.urgent("a") is urgent
