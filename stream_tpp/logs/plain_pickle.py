"""A pickle of plain data, read without running what it asks for.

A pickle is a program for a small stack machine; Python's own machine calls whatever function the file names. This one knows
the opcodes that build None, booleans, numbers, text, bytes, lists, tuples and dicts, and rebuilds NumPy numbers and
arrays itself from their checked bytes. Any other opcode or name is refused by name, and nothing is ever imported or called.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from stream_tpp.logs.file import LogError

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_EMPTY: dict[str, Callable[[], object]] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_NUMBER = re.compile(r"([biuf])([1248])")


def load_plain(stream: IO[bytes], path: Path) -> object:
    """The plain data in a pickle; NumPy arrays as lists. Raises LogError that names what is not plain, or damaged."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.run(opcode.name, argument)
        return machine.stack[-1]
    except _NotPlainError as found:
        raise LogError(
            f"{path} is a pickle that asks for {found}, which is never run: store plain lists, dicts, numbers and text."
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LogError(f"{path} is no complete pickle ({type(error).__name__}: {error}): fetch or write it again.") from None


class _NotPlainError(Exception):
    """Something in a pickle that plain data doesn't need."""


class _Name(str):
    """A name that the pickle wants looked up, "module.attribute": here only a word on the stack."""


class _Dtype:
    """A NumPy number's type while the pickle builds it."""

    def __init__(self, code: str) -> None:
        if not _NUMBER.fullmatch(code):
            raise _NotPlainError(f"NumPy data of type {code!r}")
        self.code = code
        self.dtype = np.dtype(code)

    def set_state(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if not isinstance(order, str) or order not in ("<", ">", "|", "="):
            raise ValueError("a NumPy type of unknown byte order")
        self.dtype = np.dtype(order + self.code)

    def values(self, raw: object, shape: tuple[int, ...], order: str) -> Any:
        """The array, where its bytes are exactly as many as its shape says."""
        # Pickles of Python 2 hold bytes as Latin-1 text.
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        if not isinstance(raw, bytes | bytearray) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError("a NumPy array without bytes or shape")
        if math.prod(shape) * self.dtype.itemsize != len(raw):
            raise ValueError(f"a NumPy array of shape {shape} with {len(raw)} bytes")
        if not raw:
            return np.empty(0, self.dtype)
        return np.frombuffer(raw, self.dtype).reshape(shape, order="F" if order == "F" else "C")


class _Array(list[Any]):
    """A NumPy array as a list, empty until the pickle hands its state over."""

    def set_state(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self[:] = dtype.values(raw, shape, "F" if fortran else "C").tolist()


class _Machine:
    """The stack machine, with the plain part of its opcodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, opcode: str, argument: Any) -> None:
        if opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _EMPTY:
            self.stack.append(_EMPTY[opcode]())
        elif opcode in _MOVES:
            _MOVES[opcode](self, argument)
        elif opcode not in ("PROTO", "FRAME", "STOP"):
            raise _NotPlainError(f"the opcode {opcode}")

    def marked(self) -> list[Any]:
        """Takes everything above the last mark."""
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def top(self, count: int) -> tuple[Any, ...]:
        """Takes the top `count` values."""
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        taken = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return taken

    def remember(self, key: int | None) -> None:
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def collect(self, make: Callable[[list[Any]], object]) -> None:
        taken = self.marked()
        self.stack.append(make(taken))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, _Array) or not isinstance(target, list):
            raise _NotPlainError(f"items appended to {type(target).__name__}")
        target.extend(items)

    def assign(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise _NotPlainError(f"items set in {type(self.stack[-1]).__name__}")
        self.stack[-1].update(_pairs(items))

    def reduce(self) -> None:
        name, arguments = self.top(2)
        if not isinstance(name, _Name) or name not in _REBUILD:
            raise _NotPlainError(f"a call of {name if isinstance(name, str) else type(name).__name__}")
        self.stack.append(_REBUILD[name](*arguments))

    def build(self) -> None:
        target, state = self.top(2)
        if not isinstance(target, _Array | _Dtype):
            raise _NotPlainError(f"state set on {type(target).__name__}")
        target.set_state(state)
        self.stack.append(target)

    def name(self, words: str) -> None:
        name = _Name(words)
        if name not in _REBUILD and name != "numpy.ndarray":
            raise _NotPlainError(str(name))
        self.stack.append(name)


def _pairs(items: list[Any]) -> dict[Any, Any]:
    # Plain keys only: hashing a tuple nested a million deep would overflow the interpreter's own stack.
    if not all(isinstance(key, str | int | float | bytes | None) for key in items[::2]):
        raise _NotPlainError("a dict with containers for keys")
    return dict(zip(items[::2], items[1::2], strict=True))


def _encoded(text: str, encoding: str) -> bytes:
    if encoding.lower().replace("-", "") != "latin1":
        raise _NotPlainError(f"text encoded as {encoding}")
    return text.encode("latin-1")


def _number(dtype: _Dtype, raw: object) -> object:
    return dtype.values(raw, (1,), "C")[0].item()


def _from_buffer(raw: object, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    return _Array(dtype.values(raw, shape, order).tolist())


# What stands for the functions that pickles of NumPy numbers and arrays name (NumPy 1 and 2).
_REBUILD: dict[str, Callable[..., object]] = {
    "__builtin__.bytes": lambda: b"",  # how protocols 0 to 2 write no bytes at all
    "_codecs.encode": _encoded,
    "numpy.dtype": lambda code, *_: _Dtype(code),
}
for _core in ("numpy.core", "numpy._core"):
    _REBUILD[f"{_core}.multiarray.scalar"] = _number
    _REBUILD[f"{_core}.multiarray._reconstruct"] = lambda *_: _Array()
    _REBUILD[f"{_core}.numeric._frombuffer"] = _from_buffer

_MOVES: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.top(1),
    "POP_MARK": lambda m, _: m.marked(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "LIST": lambda m, _: m.collect(list),
    "TUPLE": lambda m, _: m.collect(tuple),
    "DICT": lambda m, _: m.collect(_pairs),
    "TUPLE1": lambda m, _: m.stack.append(m.top(1)),
    "TUPLE2": lambda m, _: m.stack.append(m.top(2)),
    "TUPLE3": lambda m, _: m.stack.append(m.top(3)),
    "APPEND": lambda m, _: m.extend(list(m.top(1))),
    "APPENDS": lambda m, _: m.extend(m.marked()),
    "SETITEM": lambda m, _: m.assign(list(m.top(2))),
    "SETITEMS": lambda m, _: m.assign(m.marked()),
    "PUT": lambda m, key: m.remember(key),
    "BINPUT": lambda m, key: m.remember(key),
    "LONG_BINPUT": lambda m, key: m.remember(key),
    "MEMOIZE": lambda m, _: m.remember(None),
    "GET": lambda m, key: m.stack.append(m.memo[key]),
    "BINGET": lambda m, key: m.stack.append(m.memo[key]),
    "LONG_BINGET": lambda m, key: m.stack.append(m.memo[key]),
    "GLOBAL": lambda m, words: m.name(words.replace(" ", ".")),
    "STACK_GLOBAL": lambda m, _: m.name(".".join(m.top(2))),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
}
