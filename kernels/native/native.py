"""How the functions of this folder are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

# Zero, as a number that may change: for a plain 0 the compiler makes another copy of each function that takes it.
ZERO = np.int64(0)

Function = TypeVar("Function", bound=Callable[..., Any])


def native(function: Function) -> Function:
    """Compile, without the interpreter's lock; products and sums may be fused, nothing else is reordered."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})(function))


def inlined(function: Function) -> Function:
    """As `native`, a part of each function that calls it: for what is called too often to hand over arrays."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy", fastmath={"contract"}, forceinline=True)(function))
