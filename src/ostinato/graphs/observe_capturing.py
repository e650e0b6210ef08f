"""Code that asks whether a CUDA stream is capturing is told yes while a run is watched or taped.

Libraries take another path during a capture: transformers then leaves out the shortcuts that look
at the values of a mask. A watched run has to take the path that will be recorded, or it would
refuse a host read that the recording does not contain; and the tape follows the rule of the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class _Answer:
    """Stands in for `torch.cuda.is_current_stream_capturing` while any thread needs it.

    Other threads get the true answer; the last one out puts torch's function back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()
        self._holders = 0
        self._true_answer: Callable[[], bool] = torch.cuda.is_current_stream_capturing

    def __call__(self) -> bool:
        return getattr(self._here, "depth", 0) > 0 or self._true_answer()

    def take(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._true_answer = torch.cuda.is_current_stream_capturing
                torch.cuda.is_current_stream_capturing = self
            self._holders += 1
        self._here.depth = getattr(self._here, "depth", 0) + 1

    def give(self) -> None:
        self._here.depth -= 1
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                torch.cuda.is_current_stream_capturing = self._true_answer


_ANSWER = _Answer()


@contextmanager
def as_if_capturing() -> Iterator[None]:
    """Make `torch.cuda.is_current_stream_capturing()` say True in this thread, in the block."""
    _ANSWER.take()
    try:
        yield
    finally:
        _ANSWER.give()
