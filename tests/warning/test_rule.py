import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.warning.rule import Rule


def test_a_rule_names_itself_after_its_alarm_types_and_its_horizon() -> None:
    assert Rule({"fire", "alarm"}, 3600, 0.2).name == "alarm+fire-3600s"
    assert Rule({"fire"}, 3600, 0.2, name="burning").name == "burning"


def test_one_alarm_type_may_be_given_by_its_name() -> None:
    assert Rule("fire", 60, 0.2).alarm == {"fire"}  # type: ignore[arg-type]


def test_an_alert_clears_at_half_the_threshold_unless_told_otherwise() -> None:
    assert Rule({"fire"}, 60, 0.2).clears_below == 0.1
    assert Rule({"fire"}, 60, 0.2, clear=0.05).clears_below == 0.05


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"alarm": set()}, "at least one alarm type"),
        ({"alarm": {""}}, "at least one alarm type"),
        ({"horizon": 0}, "horizon of more than 0 s"),
        ({"horizon": float("nan")}, "horizon of more than 0 s"),
        ({"threshold": 0}, "threshold above 0"),
        ({"threshold": 1.5}, "threshold above 0"),
        ({"clear": 0.3}, "between 0 and its threshold"),
        ({"cooldown": -1}, "cooldown of 0 s or more"),
    ],
)
def test_values_that_make_no_rule_are_refused_with_a_sentence(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(StreamTppError, match=said):
        Rule(**{"alarm": {"fire"}, "horizon": 60, "threshold": 0.2} | wrong)  # type: ignore[arg-type]
