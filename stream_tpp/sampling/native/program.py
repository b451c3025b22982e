# mypy: allow-untyped-calls
"""The programs that the machine code consists of, compiled once for a CPU and kept on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import numba

from stream_tpp.kernels import native
from stream_tpp.kernels.native import mixture
from stream_tpp.sampling import native as rounds
from stream_tpp.sampling.native.history import read_history
from stream_tpp.sampling.native.paths import sample_paths

_PATIENCE = 3.0

log = logging.getLogger(__name__)


class Program(NamedTuple):
    """`read_history` and `sample_paths` of this folder, `quantiles` of `kernels.native.mixture`: from the disk where they lie
    there."""

    read_history: Callable[..., Any]
    sample_paths: Callable[..., Any]
    quantiles: Callable[..., Any]


@cache
def program() -> Program:
    """Compiled at the first call of each; later processes load what that one has written."""
    return _build(_sources())


def _build(sources: str) -> Program:
    # What is kept on disk is known by what a function closes over: a change in any file below makes another one of it.
    def read(*arguments: Any) -> Any:
        assert sources
        return read_history(*arguments)

    def sample(*arguments: Any) -> Any:
        assert sources
        return sample_paths(*arguments)

    def quantiles(*arguments: Any) -> Any:
        assert sources
        return mixture.quantiles(*arguments)

    return Program(*(_first_call_may_take_long(_compiled(part)) for part in (read, sample, quantiles)))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:
        log.warning("No folder to keep the compiled sampler in: it is compiled anew by each process. Set NUMBA_CACHE_DIR.")
        return numba.njit(nogil=True, error_model="numpy")(function)


def _first_call_may_take_long(function: Callable[..., Any]) -> Callable[..., Any]:
    called = False

    def announced(*arguments: Any) -> Any:
        nonlocal called
        if called:
            return function(*arguments)
        with _announcement():
            result = function(*arguments)
        called = True
        return result

    return announced


@contextmanager
def _announcement() -> Iterator[None]:
    """Say what takes so long, when it does."""
    timer = Timer(_PATIENCE, _announce)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _announce() -> None:
    log.warning("Compiling the sampler for this CPU: once, and about a minute.")


def _sources() -> str:
    """A digest of every file that goes into the machine code."""
    digest = blake2b(digest_size=16)
    for package in (native, rounds):
        for file in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
