import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

from stream_tpp.cli import main
from stream_tpp.cli.main import COMMANDS, Place, cli
from stream_tpp.errors import StreamTppError


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Result]:
    """Runs `stream-tpp trial`, whose body is given."""

    def runs(body: Callable[[], object]) -> Result:
        trial = SimpleNamespace(command=click.Command("trial", callback=body))
        monkeypatch.setitem(COMMANDS, "trial", Place("trial:command", "Tries."))
        monkeypatch.setattr(main, "import_module", lambda name: trial)
        return CliRunner().invoke(cli, ["trial"])

    return runs


def test_success_is_exit_code_0(run: Callable[[Callable[[], object]], Result]) -> None:
    result = run(lambda: click.echo("done"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "done\n", "")


def test_an_error_is_its_sentence_on_stderr_and_exit_code_1(run: Callable[[Callable[[], object]], Result]) -> None:
    def fails() -> None:
        raise StreamTppError("There is no model folder x: run stream-tpp fit.")

    result = run(fails)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no model folder x: run stream-tpp fit.\n"


def test_an_interrupt_ends_without_a_traceback(run: Callable[[Callable[[], object]], Result]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    result = run(interrupted)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_a_fault_of_ours_is_not_hidden(run: Callable[[Callable[[], object]], Result]) -> None:
    result = run(lambda: 1 / 0)
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["--log-level", "loud", "replay"]])
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage:")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    for under in command.commands if isinstance(command, click.Group) else [""]:
        path = f"{name} {under}".split()
        result = CliRunner().invoke(cli, [*path, "--help"])
        assert result.exit_code == 0
        assert "Example" in result.stdout
        assert " ".join(["stream-tpp", *path]) in result.stdout


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    ask = "import sys; from stream_tpp.cli.main import main; sys.argv[1:] = ['--help']\ntry: main()\nexcept SystemExit: pass\n"
    heavy = "print([m for m in ('torch', 'faust', 'numpy', 'rich', 'stream_tpp.cli.replay') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", ask + heavy], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert shown.endswith("[]\n")
