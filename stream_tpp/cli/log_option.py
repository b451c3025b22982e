"""LOG, wherever a command takes one: the file, and the names of its columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from stream_tpp.event import TIME_UNITS, Event, Fields, InvalidEvent, number_or_text, to_seconds
from stream_tpp.logs import read_log

_DEFAULT = Fields()


@dataclass(frozen=True)
class Log:
    """The log a user named on the command line."""

    path: str
    fields: Fields

    def events(self) -> Iterator[Event]:
        """Its events in the order of the file. Raises StreamTppError at what can't be read."""
        return read_log(self.path, self.fields)

    def seconds(self, time: str) -> float:
        """A time given as an option (--now, --from): a number in the log's unit, or ISO 8601."""
        try:
            return to_seconds(time if self.fields.time_unit == "iso" else number_or_text(time), self.fields.time_unit)
        except InvalidEvent as invalid:
            raise click.BadParameter(invalid.detail) from None


def log_argument(
    entity_option: str = "--entity", default: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds LOG and --entity, --time, --type, --time-unit; the command's function gets them as one `log: Log`.

    LOG may be left out where there is a `default`. --entity-column is another name of --entity, and the only one where
    `entity_option` is empty: in a command whose --entity picks an entity.
    """
    names = [name for name in (entity_option, "--entity-column") if name]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("log", required=default is None, default=default)
        @click.option(*names, "entity_column", default=_DEFAULT.entity, metavar="COLUMN", help="Column of the entity.")
        @click.option("--time", "time_column", default=_DEFAULT.time, metavar="COLUMN", help="Column of the time.")
        @click.option("--type", "type_column", default=_DEFAULT.type, metavar="COLUMN", help="Column of the event's type.")
        @click.option("--time-unit", type=click.Choice(TIME_UNITS), default=_DEFAULT.time_unit, help="Unit of numbers in it.")
        @functools.wraps(function)
        def command(
            *args: Any, log: str, entity_column: str, time_column: str, type_column: str, time_unit: str, **options: Any
        ) -> Any:
            fields = Fields(entity=entity_column, time=time_column, type=type_column, time_unit=time_unit)
            return function(*args, log=Log(log, fields), **options)

        return command

    return decorate
