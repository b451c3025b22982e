"""What no computation can use is refused where it is read, with exit code 2."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stream_tpp.cli.main import cli
from stream_tpp.cli.number import SEED, THREADS, DraftLength, Finite
from stream_tpp.sampling.draft_length import POLICIES
from stream_tpp.sampling.plan import MOST_DRAFTED


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN"])
def test_nan_and_infinity_are_in_no_range(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Finite().convert(text, None, None)


def test_bounds_hold_as_clicks_do() -> None:
    assert Finite(0, 1).convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter, match="range"):
        Finite(0, 1, min_open=True).convert("0", None, None)


@pytest.mark.parametrize(("kind", "text"), [(SEED, "-1"), (SEED, str(2**63)), (THREADS, "0"), (THREADS, "100000")])
def test_seeds_and_threads_have_ends(kind: click.IntRange, text: str) -> None:
    with pytest.raises(click.BadParameter, match="range"):
        kind.convert(text, None, None)


@pytest.mark.parametrize("given", [0, MOST_DRAFTED, *POLICIES])
def test_a_draft_length_is_a_number_or_a_policy_that_there_is(given: int | str) -> None:
    assert DraftLength().convert(str(given), None, None) == given


@pytest.mark.parametrize("text", ["-1", str(MOST_DRAFTED + 1), "fixed", "4.5"])
def test_any_other_draft_length_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(click.BadParameter, match="0 to 64, nor one of acceptance, throughput, utilisation"):
        DraftLength().convert(text, None, None)


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "LOG", "--out", "m", "--learning-rate", "nan"],
        ["fit", "LOG", "--out", "m", "--dropout", "nan"],
        ["fit", "LOG", "--out", "m", "--seed", "-1"],
        ["sample", "m", "LOG", "--horizon", "nan"],
        ["sample", "m", "LOG", "--horizon", "5", "--draft-length", "65"],
        ["sample", "m", "LOG", "--horizon", "5", "--draft-length", "fastest"],
        ["evaluate", "fidelity", "m", "LOG", "--level", "nan"],
        ["evaluate", "fidelity", "m", "LOG", "--seed", "-3"],
        ["doctor", "m", "LOG", "--seed", "-7"],
        ["doctor", "m", "LOG", "--threads", "100000"],
        ["bench", "sampler", "LOG", "--threads", "100000"],
    ],
)
def test_every_command_refuses_them(words: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, [str(tmp_path / word) if word in {"m", "LOG"} else word for word in words])
    assert result.exit_code == 2
    assert "Error: Invalid value for" in result.output
