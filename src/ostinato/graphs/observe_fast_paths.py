"""Code that asks whether a tensor overrides torch's functions is not told of our own watching.

`nn.MultiheadAttention` and the layers of `nn.Transformer` leave their fast path where
`torch.overrides.has_torch_function` says True, and it does under any function mode. A watched run
has to take the path of a plain run: the other kernel returns other bits, in another layout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import overrides
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from ostinato.graphs.observe_host import HostWatcher

_OVERRIDES: Any = overrides


class _Answer:
    """Stands in for `torch.overrides.has_torch_function` while any thread needs it.

    Other threads get the true answer, because modes are a thread's own; the last one out puts
    torch's function back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._true_answer: Callable[..., bool] = overrides.has_torch_function

    def __call__(self, relevant_args: Any) -> bool:
        modes = _get_current_function_mode_stack()
        if not (modes and all(isinstance(mode, HostWatcher) for mode in modes)):
            return self._true_answer(relevant_args)
        popped: list[TorchFunctionMode] = [_pop_mode() for _ in modes]
        try:
            return self._true_answer(relevant_args)
        finally:
            for mode in reversed(popped):
                _push_mode(mode)

    def take(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._true_answer = _OVERRIDES.has_torch_function
                _OVERRIDES.has_torch_function = self
            self._holders += 1

    def give(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _OVERRIDES.has_torch_function = self._true_answer


_ANSWER = _Answer()


@contextmanager
def watched_as_if_plain() -> Iterator[None]:
    """Leave our own watching out of `torch.overrides.has_torch_function` in this thread."""
    _ANSWER.take()
    try:
        yield
    finally:
        _ANSWER.give()
