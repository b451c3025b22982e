"""A real model behind the operators: an event that is delivered again has the same outputs, whatever was kept of its history."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from stream_tpp.forecast import Forecaster
from stream_tpp.operators.driver import Driver
from stream_tpp.warning.rule import Rule
from tests.sampling.test_native import build

RULES = [Rule({"b"}, horizon=20_000.0, threshold=0.3, name="b")]


def forecaster() -> Forecaster:
    return Forecaster(build("thp"), RULES, horizon=20_000.0, paths=2, most_paths=2)


@pytest.mark.parametrize("remembers", [True, False])
def test_what_is_delivered_again_is_answered_byte_for_byte_as_the_first_time(remembers: bool) -> None:
    rng, driver = np.random.default_rng(4), Driver(forecaster(), RULES, commits=False)
    for number in range(220):
        time = 1.37e9 + 20_000.0 * number - (50_000.0 if rng.random() < 1 / 20 else 0.0)
        driver.send(orjson.dumps({"entity": "xy"[number % 2], "time": time, "type": "abcde"[int(rng.integers(5))]}))
        if number % 40 == 10:
            driver.commit()
        if number % 60 == 45:
            if not remembers:
                driver.forecaster = forecaster()
            assert driver.crash()
    first, again = dict[str, bytes](), 0
    for output in driver.of("forecasts") + driver.of("warnings"):
        assert output.value is not None
        name = orjson.loads(output.value)["id"]
        again += name in first
        assert first.setdefault(name, output.value) == output.value
    assert len(first) == 2 * 220
    assert again > 80
    assert driver.counters.dead_lettered.total() == 0
    assert driver.forecaster.prefixes.hits > 50  # type: ignore[attr-defined]
