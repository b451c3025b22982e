"""The two programs that the machine code consists of, compiled once for a CPU and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numba

from stream_tpp.kernels import native
from stream_tpp.sampling import native as rounds
from stream_tpp.sampling.native.history import read_history
from stream_tpp.sampling.native.paths import sample_paths


class Program(NamedTuple):
    """`stream_tpp.sampling.native.history.read_history` and `.paths.sample_paths`, from the disk where they lie there."""

    read_history: Callable[..., Any]
    sample_paths: Callable[..., Any]


@cache
def program() -> Program:
    """Compiled at the first call with arguments of a kind; later processes load what that one has written."""
    return _build(_sources())


def _build(sources: str) -> Program:
    # What is kept is known by the names that a function closes over: a change in any file below gives another one.
    def read(*arguments: Any) -> Any:
        assert sources
        return read_history(*arguments)

    def sample(*arguments: Any) -> Any:
        assert sources
        return sample_paths(*arguments)

    compile = numba.njit(nogil=True, error_model="numpy", cache=True)
    return Program(compile(read), compile(sample))


def _sources() -> str:
    """A digest of every file that goes into the machine code."""
    digest = blake2b(digest_size=16)
    for package in (native, rounds):
        for file in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
