from stream_tpp.warning.alert import AlertState, decide
from stream_tpp.warning.rule import Rule

RULE = Rule({"fire"}, horizon=60, threshold=0.4, clear=0.2, cooldown=100)


def changes(scores: list[float], rule: Rule = RULE, step: float = 10.0) -> list[str | None]:
    state, seen = AlertState(), []
    for number, score in enumerate(scores):
        state, change = decide(state, rule, score, at=number * step)
        seen.append(change)
    return seen


def test_an_alert_is_raised_at_the_threshold_and_cleared_below_the_clear_level() -> None:
    assert changes([0.39, 0.4, 0.2, 0.19]) == [None, "raised", None, "cleared"]


def test_a_score_that_wavers_between_the_levels_changes_nothing() -> None:
    assert changes([0.5, 0.3, 0.5, 0.3, 0.5]) == ["raised", None, None, None, None]
    assert changes([0.3, 0.39, 0.3]) == [None, None, None]


def test_no_alert_is_raised_while_the_last_one_cools_down() -> None:
    assert changes([0.5, 0.1, 0.5, 0.5], step=50) == ["raised", "cleared", None, "raised"]


def test_the_cooldown_holds_back_no_first_alert() -> None:
    assert changes([0.5]) == ["raised"]


def test_what_is_not_changed_keeps_its_time() -> None:
    state = AlertState(True, 5.0)
    assert decide(state, RULE, 0.9, at=80.0) == (state, None)
