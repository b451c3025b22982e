"""The `stream-tpp` command: what all its commands share, and where each is found."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click

from stream_tpp.cli.logs_shown import log_to_stderr
from stream_tpp.errors import StreamTppError

INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C


class Place(NamedTuple):
    """Where a command is defined, and what it does in a few words: `--help` imports none of them."""

    command: str
    does: str


COMMANDS = {
    "demo": Place("stream_tpp.cli.demo:command", "The main job on real flights, from start to summary."),
    "fit": Place("stream_tpp.cli.fit:command", "Train a target and its draft on a log."),
    "sample": Place("stream_tpp.cli.sample:command", "Simulate futures of the entities of a log."),
    "evaluate": Place("stream_tpp.cli.evaluate:command", "Judge a model: fidelity of its samples, forecasts."),
    "doctor": Place("stream_tpp.cli.doctor:command", "Say why a model samples badly or slowly, and what to do."),
    "bench": Place("stream_tpp.cli.bench:command", "Measure the sampler's speed."),
    "replay": Place("stream_tpp.cli.replay:command", "Publish a log to Kafka in the order of its events."),
    "worker": Place("stream_tpp.cli.worker:command", "Run a topology as a Faust worker."),
}


class StreamTpp(click.Group):
    """Finds commands by the table, and turns the errors that a user is meant to read into their sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].command.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.does) for name, place in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except StreamTppError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.command(
    cls=StreamTpp,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Example: stream-tpp demo",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="warning",
    help="How much to say on stderr.",
)
@click.version_option(package_name="stream-tpp", prog_name="stream-tpp")
def cli(log_level: str) -> None:
    """Turn a Kafka topic of events into forecasts and early warnings."""
    log_to_stderr(log_level)


def main() -> None:
    """The console script."""
    cli(prog_name="stream-tpp")
