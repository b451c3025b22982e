"""A child process that ends with its parent, however the parent ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

END_WITHIN = 10.0

# Reads until its parent closes the pipe by dying, SIGKILL included; then ends the child and removes its folder. What a
# parent can't wait for: a child that does not end when it is asked to, as a worker may whose broker went first.
WATCH = f"""
import os, select, shutil, signal, sys, time

def ended(pid, within):
    if hasattr(os, "pidfd_open"):
        return select.select([os.pidfd_open(pid)], [], [], within)[0]
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        os.kill(pid, 0)
        time.sleep(0.05)

sys.stdin.buffer.read()
pid = int(sys.argv[1])
try:
    os.kill(pid, signal.SIGTERM)
    if not ended(pid, {END_WITHIN}):
        os.kill(pid, signal.SIGKILL)
except OSError:
    pass
for folder in sys.argv[2:]:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Child:
    """A running command whose output goes to the file `log`; `end` it, or it ends with this process.

    It gets a session of its own: Ctrl-C is for the parent, which decides when the child goes. `remove` is a folder to
    remove when the parent dies without a word.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        remove: Path | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCH, str(self.process.pid), *([str(remove)] if remove else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last line that it wrote."""
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")

    def end(self, within: float = END_WITHIN) -> int:
        """Ask it to end, kill it after `within` seconds; its exit code (negative: the signal that ended it)."""
        self._unwatch()
        if self.running:
            self.process.terminate()
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it at once, as a crash would (SIGKILL)."""
        self._unwatch()
        self.process.kill()
        return self.process.wait()

    def _unwatch(self) -> None:
        # Before the child is reaped: after that its process id may be someone else's.
        self._watcher.kill()
        self._watcher.wait()
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()
