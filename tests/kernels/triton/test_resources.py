"""The kernels compile to machine code for GPUs that are not there, and keep to their registers."""

import pytest

from stream_tpp.kernels.triton.resources import launches, resources

SMALL, PAPER = launches(16, 16), launches(64, 32)
# Verification takes seconds to compile, the rest a second.
SLOW = {"joint", "joint, quiet until now"}
KERNELS = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SMALL]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_compiles_with_no_gpu(kernel: str, capability: int) -> None:
    compiled = SMALL[kernel].compiled(capability)
    assert compiled.asm["cubin"].startswith(b"\x7fELF")
    assert f".target sm_{capability}" in compiled.asm["ptx"]
    assert "f32.f64" not in compiled.asm["ptx"]  # nothing is rounded to float32


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", SMALL)
def test_a_kernel_of_the_papers_size_spills_nothing(kernel: str, capability: int) -> None:
    used = resources(PAPER[kernel], capability)
    assert 16 <= used.registers <= 255
    assert (used.stack, used.spill_loads, used.spill_stores) == (0, 0, 0)
