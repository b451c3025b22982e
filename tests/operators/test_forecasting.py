"""From an event to its forecast and warnings, with no broker, thread or clock."""

import orjson


def test_an_event_becomes_a_forecast_and_a_warning_for_each_rule(drive, event) -> None:
    driver = drive(rules=("storm", "flood"))
    outputs = [output for output in driver.send(event("gauge-1", 5.0, "bad")) if output.channel != "alerts"]
    assert [output.channel for output in outputs] == ["forecasts", "warnings", "warnings"]
    assert {output.key for output in outputs} == {b"gauge-1"}
    forecast, storm, flood = [orjson.loads(output.value) for output in outputs]
    source = {"topic": "events", "partition": 0, "offset": 0}
    assert forecast == {
        "id": "gauge-1:events:0:0",
        "entity": "gauge-1",
        "made_at": 5.0,
        "source": source,
        "model": "model-1",
        "horizon": 60.0,
        "paths": 8,
        "next": {"gap_quantiles": {"0.5": 5.0, "0.9": 0.0}, "types": {"bad": 1.0}},
        "counts": {"bad": {"mean": 1.0}},
    }
    assert storm["id"] == "gauge-1:events:0:0:storm"
    assert flood["id"] == "gauge-1:events:0:0:flood"
    assert storm.keys() == {
        *("id", "entity", "made_at", "source", "model", "rule", "score", "low", "high", "lead_quantiles"),
    }
    assert (storm["rule"], storm["score"], storm["source"]) == ("storm", 1.0, source)


def test_a_forecast_is_made_from_the_events_of_its_entity_alone(drive, event) -> None:
    driver = drive()
    for time in (1.0, 2.0):
        driver.send(event("a", time))
        driver.send(event("b", time + 10, "bad"))
    assert driver.forecaster.requests[-2].history.times.tolist() == [1.0, 2.0]
    assert driver.forecaster.requests[-1].history.times.tolist() == [11.0, 12.0]
    assert driver.forecaster.requests[-1].history.types.tolist() == [1, 1]


def test_a_model_is_shown_no_more_than_its_window(drive, event) -> None:
    driver = drive(window=3)
    for time in range(10):
        driver.send(event("a", float(time)))
    history = driver.forecaster.requests[-1].history
    assert (history.times.tolist(), history.start) == ([7.0, 8.0, 9.0], 6.0)


def test_a_late_event_takes_its_place_and_does_not_turn_back_the_clock(drive, event) -> None:
    driver = drive(grace=60)
    for time in (100.0, 110.0, 105.0):
        driver.send(event("a", time))
    request = driver.forecaster.requests[-1]
    assert request.history.times.tolist() == [100.0, 105.0, 110.0]
    assert request.now == 110.0
    assert orjson.loads(driver.of("forecasts")[-1].value)["made_at"] == 110.0


def test_a_repeat_of_an_event_is_counted_and_says_nothing(drive, event) -> None:
    driver = drive()
    driver.send(event("a", 1.0, id="x"))
    assert driver.send(event("a", 1.0, id="x")) == []
    assert driver.send(event("b", 1.0, id="x")) != []
    assert driver.counters.repeats == 1
    assert driver.counters.processed == 3


def test_events_without_an_id_are_no_repeats_of_one_another(drive, event) -> None:
    driver = drive()
    assert driver.send(event("a", 1.0))
    assert driver.send(event("a", 1.0))
    assert driver.counters.repeats == 0


def test_a_batch_is_answered_in_the_order_of_its_events(drive, event) -> None:
    driver = drive(batch=3)
    assert driver.send(event("a", 1.0)) == driver.send(event("b", 1.0)) == []
    outputs = driver.send(event("c", 1.0))
    assert driver.forecaster.batches == [["a", "b", "c"]]
    assert [output.key for output in outputs if output.channel == "forecasts"] == [b"a", b"b", b"c"]


def test_every_event_is_processed_or_a_dead_letter(drive, event) -> None:
    driver = drive(guilty=frozenset({"g"}))
    for value in (event("a", 1.0, id="1"), event("a", 1.0, id="1"), b"{", None, event("g", 1.0), event("a", 2.0, "odd")):
        driver.send(value)
    counters = driver.counters
    assert counters.events_in == 6
    assert counters.processed + counters.dead_lettered.total() == 6
    assert counters.forecasts == len(driver.of("forecasts")) == 1


def test_a_record_too_large_for_kafka_is_a_dead_letter_instead(drive, event, monkeypatch) -> None:
    monkeypatch.setattr("stream_tpp.operators.forecasting.LARGEST_VALUE", 100)
    (letter,) = drive().send(event("a", 1.0))
    assert (letter.channel, letter.headers["reason"]) == ("dead_letters", b"oversized_forecast")
