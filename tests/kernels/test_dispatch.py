"""An operation picks its implementation by device; the CPU's way knows nothing of Triton."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stream_tpp.kernels import dispatch, mixture


class OnCuda(Tensor):
    """A tensor that says that it is on CUDA."""

    is_cuda = True


def normal() -> tuple[Tensor, Tensor, Tensor]:
    zeros = torch.zeros(2, 1, dtype=torch.float64)
    return zeros, zeros, zeros


Y = torch.zeros(2, dtype=torch.float64)
U = torch.full((2, 2), 0.5, dtype=torch.float64)
CALLS = {
    "log_density": (Y, *normal()),
    "log_survival": (Y, *normal()),
    "sample": (U, *normal()),
    "sample_above": (Y, U, *normal()),
}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Triton functions that were called, which are taken away so that no GPU is needed."""
    triton = pytest.importorskip("stream_tpp.kernels.triton.mixture")
    called: list[str] = []

    def stand_in(name: str) -> Callable[..., Tensor]:
        def kernel(*tensors: Tensor) -> Tensor:
            called.append(name)
            return tensors[0]

        return kernel

    for name in CALLS:
        monkeypatch.setattr(triton, name, stand_in(name))
    return called


@pytest.mark.parametrize("operation", CALLS)
def test_cuda_tensors_go_to_the_kernel_of_the_same_name(kernels: list[str], operation: str) -> None:
    first, *rest = CALLS[operation]
    getattr(mixture, operation)(first.as_subclass(OnCuda), *rest)
    assert kernels == [operation]


@pytest.mark.parametrize("operation", CALLS)
def test_other_tensors_go_to_the_reference(kernels: list[str], operation: str) -> None:
    public = getattr(mixture, operation)
    assert torch.equal(public(*CALLS[operation]), public.__wrapped__(*CALLS[operation]))
    assert kernels == []


def test_what_is_differentiated_goes_to_the_reference(kernels: list[str]) -> None:
    y = Y.clone().as_subclass(OnCuda).requires_grad_()
    (gradient,) = torch.autograd.grad(mixture.log_density(y, *normal()).sum(), y)
    assert gradient.tolist() == [0.0, 0.0]
    assert kernels == []
    with torch.no_grad():
        mixture.log_density(y, *normal())
    assert kernels == ["log_density"]


def test_without_triton_the_reference_answers(kernels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_is_installed", lambda: False)
    assert mixture.log_survival(Y.as_subclass(OnCuda), *normal()).exp().tolist() == [0.5, 0.5]
    assert kernels == []


def test_the_kernels_are_not_imported_before_they_are_needed() -> None:
    check = (
        "import sys, torch; before = set(sys.modules)\n"
        "from stream_tpp.kernels import mixture; import stream_tpp.kernels.verification\n"
        "y = torch.zeros(1, 1, dtype=torch.float64); mixture.log_density(y[0], y, y, y)\n"
        "print([m for m in set(sys.modules) - before if m.startswith(('triton', 'stream_tpp.kernels.triton'))])"
    )
    assert subprocess.run((sys.executable, "-c", check), capture_output=True, text=True, check=True).stdout == "[]\n"
