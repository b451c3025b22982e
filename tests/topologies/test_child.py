"""A child process ends when it is told to, and when its parent ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stream_tpp.topologies.child import Child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def said(child: Child, word: str) -> None:
    until = time.monotonic() + 20
    while child.last_words() != word and time.monotonic() < until:
        time.sleep(0.01)
    assert child.last_words() == word


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_ends_by_itself_gives_its_code_and_its_last_words(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"], tmp_path / "log")
    child.process.wait()
    assert not child.running
    assert child.end() == 3
    assert child.last_words() == "two"


def test_a_child_is_asked_to_end(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], tmp_path / "log")
    assert child.running
    assert child.end() == -signal.SIGTERM


def test_a_child_that_will_not_end_is_killed(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", STUBBORN], tmp_path / "log")
    said(child, "ready")
    assert child.end(within=0.1) == -signal.SIGKILL


def test_a_killed_child_had_no_say(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], tmp_path / "log")
    assert child.kill() == -signal.SIGKILL
    assert child.end() == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("command", [["sleep", "60"], [sys.executable, "-c", STUBBORN]])
def test_a_child_ends_with_its_parent(tmp_path: Path, number: signal.Signals, command: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    code = "import pathlib, sys, time; from stream_tpp.topologies import child; "
    code += "f = pathlib.Path(sys.argv[1]); child.WATCH = child.WATCH.replace('10.0', '0.3'); "
    code += "c = child.Child(sys.argv[2:], f / 'log', remove=f)\n"
    code += "while len(sys.argv) > 4 and c.last_words() != 'ready': time.sleep(0.01)\n"
    code += "print(c.process.pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code, str(folder), *command], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        os.kill(parent.pid, number)
        parent.wait()
    until = time.monotonic() + 10
    while (alive(pid) or folder.exists()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(pid)
    assert not folder.exists()
