"""What every footgun is held to besides its own rule: the process is as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def _process_is_as_before(_without_gradients: None) -> Iterator[None]:
    """Garbage collection, streams, modes and autocast are as before each test."""
    before = _modes()
    yield
    assert _modes() == before
    assert gc.isenabled()
    if torch.cuda.is_initialized():
        assert not torch.cuda.is_current_stream_capturing()
        torch.cuda.synchronize()  # a broken device fails the test that broke it


def _modes() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "device": torch.cuda.current_device() if torch.cuda.is_initialized() else 0,
        "default dtype": torch.get_default_dtype(),
    }
