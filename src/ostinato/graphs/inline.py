"""Is this thread recording, or being traced? Then a graphed callable inside runs as plain code.

A call that is as one before asks all of that in C, with everything else (`recall.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.fx import _symbolic_trace


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
    """Whether a call belongs to an outer recording: ours, a compiler's or a user's graph."""
    # Asked first: a tracer answers it by itself and looks no further. A capture needs a device that
    # is in use; asking torch.cuda.is_initialized() for that would be one more call.
    return (
        torch.compiler.is_compiling()
        or _depth.value > 0
        or is_traced()
        or getattr(_symbolic_trace, "_is_fx_tracing_flag", False)
        or (torch.cuda._initialized and _is_capturing())
    )


def not_inline_at_a_glance() -> tuple[list[object], tuple[object, ...]]:
    """Return what `recalls` needs to know that `runs_inline` would say no, for a call with tensors.

    That a call is traced shows in its tensors; `is_traced` is to be asked where there is none.

    Returns:
        Settings as (function, answer, ...), and places as (container, key, value, ...).
    """
    is_used = torch.cuda._initialized
    places = (
        vars(torch.compiler), "_is_compiling_flag", False,
        _depth, "value", 0,
        vars(torch.cuda), "_initialized", is_used,
    )  # fmt: skip
    return [_is_capturing, False] if is_used else [], places


# Torch's own Python functions round these are one more call.
is_traced: Callable[[], bool] = torch._C._is_tracing  # by `torch.jit.trace`
_is_capturing: Callable[[], bool] = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)
