"""Where Triton's kernels run: in its interpreter without a GPU, compiled on one."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=[pytest.param("interpreter"), pytest.param("gpu", marks=pytest.mark.gpu)])
def kernel_device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU with interpreted kernels, a GPU with compiled ones: a process has one of them."""
    triton = pytest.importorskip("triton")
    if request.param == "gpu":
        return torch.device("cuda:0")
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    return torch.device("cpu")
