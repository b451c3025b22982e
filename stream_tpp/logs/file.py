"""What every reader shares: opening a log file, and turning one of its rows into an event or a sentence that says why not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields, InvalidEvent, parse_event


class LogError(StreamTppError):
    """A log that can't be read: file, place in it, fault, mend."""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a log file, unpacked where its name ends in .gz. Raises LogError, also while it is being read."""
    try:
        packed = path.suffix.lower() == ".gz"
        with cast(IO[bytes], gzip.open(path, "rb") if packed else open(path, "rb")) as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LogError(f"{path} is no complete gzip file ({error}): fetch or pack it again.") from None
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or error}.") from None


def event_at(place: str, path: Path, record: Mapping[str, object], fields: Fields) -> Event:
    """The event in a row of a log; `place` says where the row stands ("line 7"). Raises LogError."""
    try:
        return parse_event(record, fields)
    except InvalidEvent as invalid:
        raise bad_row(place, path, invalid) from None


def bad_row(place: str, path: Path, invalid: InvalidEvent) -> LogError:
    return LogError(f"{path}, {place}: {invalid.detail} {_mend(invalid.reason)}")


def _mend(reason: str) -> str:
    part = reason.partition("_")[2]
    if reason.startswith("missing_"):
        return f"Name the column with --{part}, or mend the row."
    if part == "time":
        return "Name its unit with --time-unit (s, ms, us, ns, iso), or mend the row."
    return "Mend the row or take it out."
