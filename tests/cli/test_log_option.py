from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stream_tpp.cli.log_option import Log, log_argument
from stream_tpp.event import Event, Fields


@click.command()
@log_argument()
@click.option("--paths", default=1)
def show(log: Log, paths: int) -> None:
    for event in log.events():
        click.echo(f"{event} {paths}")


@click.command()
@log_argument(entity_option="")
@click.option("--entity")
def pick(log: Log, entity: str | None) -> None:
    click.echo(f"{log.fields.entity} {entity}")


def test_a_command_gets_the_log_with_the_columns_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("case,at,what\nc,1500,x\n")
    options = ["--entity", "case", "--time", "at", "--type", "what", "--time-unit", "ms", "--paths", "3"]
    result = CliRunner().invoke(show, [str(path), *options])
    assert result.stdout == f"{Event('c', 1.5, 'x')} 3\n"
    options[0] = "--entity-column"
    assert CliRunner().invoke(show, [str(path), *options]).stdout == result.stdout


def test_a_command_may_keep_entity_for_itself() -> None:
    result = CliRunner().invoke(pick, ["log.csv", "--entity", "a", "--entity-column", "case"])
    assert result.stdout == "case a\n"


def test_an_unknown_time_unit_is_wrong_use() -> None:
    assert CliRunner().invoke(show, ["log.csv", "--time-unit", "weeks"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [("1500", "ms", 1.5), ("2013-01-01", "s", 1356998400.0), ("20130101", "iso", 1356998400.0), ("2.5", "s", 2.5)],
)
def test_times_in_options_are_in_the_unit_of_the_log_or_iso(text: str, unit: str, seconds: float) -> None:
    assert Log("log.csv", Fields(time_unit=unit)).seconds(text) == seconds


def test_a_time_that_is_none_is_wrong_use() -> None:
    with pytest.raises(click.BadParameter, match="not ISO 8601: 'noon'"):
        Log("log.csv", Fields()).seconds("noon")
