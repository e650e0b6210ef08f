"""Compiled code runs eagerly while a run is watched.

What `torch.compile` produces for a CPU is one opaque C++ call: no aten call reaches a watcher, and
a tape would replay nothing. Left alone, dynamo stands back under a dispatch mode, but then marks
the function as one never to compile, and with `fullgraph=True` raises from then on. With the stance
`force_eager` every compiled function runs the code it was compiled from. The stance is one variable
for the whole process, so that other threads run eagerly too meanwhile, which is slow but right.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _Stance:
    """Counts who needs the eager stance: the last one out restores what the first one found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._stance: Any = None  # torch types the class as a function

    def take(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._stance = torch.compiler.set_stance("force_eager")
            self._holders += 1

    def give(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._stance is not None:
                self._stance.__exit__(None, None, None)
                self._stance = None


_STANCE = _Stance()


@contextmanager
def compiled_code_runs_eagerly() -> Iterator[None]:
    """Let code under `torch.compile` run as written until the block ends."""
    # Importing the compiler takes seconds; nobody can have compiled anything without it.
    if "torch._dynamo" not in sys.modules:
        yield
        return
    _STANCE.take()
    try:
        yield
    finally:
        _STANCE.give()
