"""Is this thread recording, or being traced? Then a graphed callable inside runs as plain code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Depth(threading.local):
    value = 0


_depth = _Depth()


@contextmanager
def recording_here() -> Iterator[None]:
    """Mark this thread as making a recording."""
    _depth.value += 1
    try:
        yield
    finally:
        _depth.value -= 1


def runs_inline() -> bool:
    """Whether a call belongs to an outer recording: ours, the compiler's or a user's graph."""
    # Asked first: a tracer answers it by itself and looks no further.
    return torch.compiler.is_compiling() or _depth.value > 0 or _is_capturing()


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
