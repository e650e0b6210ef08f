"""What other threads may not do while a graph is captured: wait for a whole device.

CUDA permits that in no mode of capturing, not even in a thread that has nothing to do with it: its
`torch.cuda.synchronize()` would raise, and the capture would be lost as well. So such a wait is
held back until the capture is over, as it would be behind any other work of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

import torch

_DOORS = ("_cuda_synchronize", "_accelerator_synchronizeDevice")
"""Through these `torch.cuda.synchronize` and `torch.accelerator.synchronize` go."""
_LONGEST_WAIT_S = 5.0
"""What is captured may itself wait for that thread: then CUDA's own error is the better end."""


class Lock(Protocol):
    """A lock that its owner may take again, as `threading.RLock`."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
    def release(self) -> None: ...


@contextmanager
def device_waits_held_back(lock: Lock) -> Iterator[None]:
    """Have every thread but this one take `lock` before it waits for a device.

    Args:
        lock: Held by the thread that captures, from before the block until after it.
    """
    doors: list[tuple[str, Callable[..., Any]]] = [
        (name, door) for name in _DOORS if (door := getattr(torch._C, name, None)) is not None
    ]
    for name, door in doors:
        setattr(torch._C, name, _behind(lock, door))
    try:
        yield
    finally:
        for name, door in doors:
            setattr(torch._C, name, door)


def _behind(lock: Lock, door: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(door)
    def wait(*args: Any) -> Any:
        is_taken = lock.acquire(timeout=_LONGEST_WAIT_S)
        try:
            return door(*args)
        finally:
            if is_taken:
                lock.release()

    return wait
