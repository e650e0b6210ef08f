"""Whether the program has a GPU and uses it, asked without being the first to use it.

A process that has begun to use CUDA cannot use it in a child that it forks, and torch counts even
`torch.cuda.is_available()` as a beginning. So nothing here begins it: what has to be done on the
GPU waits until the program does.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from ostinato.doctor.collect.patches import quietly


def has_gpu() -> bool:
    """Return whether there is a GPU that the program could use."""
    return torch.cuda.device_count() > 0  # asks the driver's management library, which is no use


def uses_gpu() -> bool:
    """Return whether this process has begun to use CUDA."""
    return bool(torch.cuda.is_initialized())


def is_capturing() -> bool:
    """Return whether the current stream is captured into a graph."""
    return uses_gpu() and torch.cuda.is_current_stream_capturing()


def once_used(act: Callable[[], None]) -> None:
    """Call `act` when this process begins to use CUDA: now, later, or never.

    In a forked child it is not called; what it raises is logged.
    """
    pid = os.getpid()

    def begin() -> None:
        if os.getpid() == pid:
            quietly(act)

    torch.cuda._lazy_call(begin)
