"""`stream-tpp worker`: a topology as a Faust worker."""

from __future__ import annotations

from importlib import import_module

import click

TOPOLOGIES = {
    "early_warning": "stream_tpp.topologies.early_warning:create_app",
    "simulate": "stream_tpp.topologies.simulate:create_app",
}


@click.command(epilog="Example: stream-tpp worker early_warning --config settings.toml")
@click.argument("topology", type=click.Choice(list(TOPOLOGIES)))
@click.option("--config", type=click.Path(dir_okay=False), help="Settings (TOML).  [default: the built-in ones]")
def command(topology: str, config: str | None) -> None:
    """Run TOPOLOGY as a Faust worker until SIGTERM or Ctrl-C ends it.

    Settings come from the file, then from the environment (KAFKA_BOOTSTRAP_SERVERS, and STREAM_TPP_SECTION_KEY for [section]
    key). Exit code 0 when a signal ended it, 1 when it could not start or died.
    """
    from stream_tpp.topologies.run import run
    from stream_tpp.topologies.settings import load

    settings = load(config)
    module, _, factory = TOPOLOGIES[topology].partition(":")
    create_app = getattr(import_module(module), factory)

    def ready() -> None:
        click.echo(f"{topology} reads {settings.topics.events} at {settings.kafka.bootstrap_servers}; Ctrl-C ends it.", err=True)

    run(lambda: create_app(settings), ready)
