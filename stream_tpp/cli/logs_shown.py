"""Logs on stderr, each thing said once."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

QUIET_FOR = 60.0


class Once(logging.Filter):
    """Lets a message through, and then not again for a minute: Kafka's client repeats "broker is gone" ten times a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self.said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self.clock()
        self.said = {message: at for message, at in self.said.items() if now - at < QUIET_FOR}
        return self.said.setdefault(record.getMessage(), now) == now


def log_to_stderr(level: str) -> None:
    """Sends the logs of `level` and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Once())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # At debug level it tells each step of a compilation, and takes minutes longer for it.
    logging.getLogger("numba").setLevel(logging.WARNING)
