"""Triton's interpreter: kernels run in Python on CPU tensors, in a process of their own that knows no other Triton."""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

Interpreted = Callable[..., Any]


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreted]:
    """Calls a function of tensors where kernels are interpreted: interpreted(function, *arguments) -> what it returns."""
    with (
        mock.patch.dict(os.environ, TRITON_INTERPRET="1"),
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare) as process,
    ):
        yield lambda function, *arguments: process.submit(function, *arguments).result()


def _prepare() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)  # NumPy's word for integers that wrap round
