"""However far behind the engine is, and whatever crashes: the topics account for every event, and the newest state stands."""

from __future__ import annotations

import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_tpp.operators.driver import Driver
from stream_tpp.topologies.ledger import Audit, Entry, Ledger
from stream_tpp.warning.rule import Rule
from tests.operators.conftest import Engine

RULES = [Rule({"bad"}, horizon=60, threshold=0.5, clear=0.3, name="r")]


STEPS = ["event"] * 12 + ["crash", "crash", "commit", "slower", "faster"]


def behind(**options: object) -> Driver:
    return Driver(Engine(), RULES, window=8, batch=2, waiting=6, conflate=True, **options)  # type: ignore[arg-type]


def audit(driver: Driver, sent: list[bytes]) -> Audit:
    ledger = Ledger("events", RULES)
    for offset, value in enumerate(sent):
        ledger.take(Entry("events", 0, offset, 0.0, None, value))
    for number, output in enumerate(driver.outputs):
        ledger.take(Entry(output.channel, 0, number, 0.0, output.key, output.value, output.headers))
    return ledger.audit()


def events(draw: random.Random, count: int, entities: int = 5) -> list[bytes]:
    return [
        orjson.dumps({"entity": f"e{draw.randrange(entities)}", "time": time, "type": draw.choice(["ok", "bad"])})
        for time in range(count)
    ]


def test_an_engine_that_is_behind_answers_the_newest_for_all_and_says_so() -> None:
    driver, sent = behind(), events(random.Random(0), 400)
    for value in sent:
        driver.send(value)
    driver.flush()
    account = audit(driver, sent)
    assert account.sound, account.faults
    assert account.conflated == driver.counters.conflated > 100
    assert account.processed == account.forecasts + account.conflated == 400
    # The newest state of each entity is on the topic, made of the whole history.
    eager = Driver(Engine(), RULES, window=8)
    for value in sent:
        eager.send(value)
    assert newest(driver) == newest(eager)


def newest(driver: Driver) -> dict[bytes | None, bytes | None]:
    return {output.key: output.value for output in driver.of("forecasts")}


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.lists(st.sampled_from(STEPS), min_size=30, max_size=120))
def test_crashes_at_any_time_lose_and_contradict_nothing(seed: int, steps: list[str]) -> None:
    driver, sent = behind(commits=False), []
    fresh = iter(events(random.Random(seed), len(steps), entities=3))
    for step in steps:
        if step == "event":
            sent.append(next(fresh))
            driver.send(sent[-1])
        elif step == "crash":
            driver.crash()
        elif step == "commit":
            driver.commit()
        else:
            # What was conflated before a crash is not after it, or the other way round.
            driver.waiting = 6 if step == "slower" else 0
    driver.flush()
    account = audit(driver, sent)
    assert (account.lost, account.contradictory) == (0, 0), account.faults
    assert account.events_in == account.processed


@pytest.mark.parametrize("outcome", ["raises", "is not a number"])
def test_events_that_a_failed_one_stands_for_are_dead_letters_like_it(outcome: str) -> None:
    guilty = {"guilty": frozenset({"g"})} if outcome == "raises" else {"nan": frozenset({"g"})}
    driver = Driver(Engine(**guilty), RULES, batch=1, waiting=4, conflate=True)  # type: ignore[arg-type]
    sent = [orjson.dumps({"entity": entity, "time": time, "type": "ok"}) for time, entity in enumerate("agggbcd")]
    for value in sent:
        driver.send(value)
    driver.flush()
    account = audit(driver, sent)
    assert account.sound, account.faults
    assert account.reasons == {"sampler_failed": 3}
    assert [letter.value for letter in driver.of("dead_letters")] == sent[1:4]
