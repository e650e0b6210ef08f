"""Kernels whose GPU tests are at the sizes of models, and apart from those in the interpreter."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def interpreter() -> torch.device:
    """The CPU with interpreted kernels."""
    triton = pytest.importorskip("triton")
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    return torch.device("cpu")
