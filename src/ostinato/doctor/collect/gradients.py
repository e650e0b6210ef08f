"""Values that were read from a tensor with a history, and went back into one as plain numbers.

A read is remembered for a while. Only once there has been one are sums and products looked at: the
very number that comes back, or any number beside a tensor on the very line of the read, has lost
its history on the way.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ostinato.doctor.activity import LostGradient
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import place_of, users_frame
from ostinato.doctor.finding import Place

_REMEMBERED = 64
_ARITHMETIC = (
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "add",
    "sub",
    "mul",
    "div",
)


@dataclass(slots=True)
class _Read:
    op: str
    value: Any
    place: Place


@dataclass(slots=True)
class _Lost:
    read: _Read
    used: Place
    certain: bool
    count: int = 0


class Gradients:
    """Follows numbers that were read from tensors with a history."""

    name = "gradients"

    def __init__(self, notebook: Notebook, patches: Patches) -> None:
        self._notebook = notebook
        self._patches = patches
        self._reads: deque[_Read] = deque(maxlen=_REMEMBERED)
        self._lost: dict[tuple[str, int, str, int], _Lost] = {}
        self._looks = False

    def start(self) -> None:
        """Nothing to do until `hear_read` is called."""

    def stop(self) -> None:
        """Nothing to do: the patches are undone together."""

    def hear_read(self, op: str, value: Any, frame: FrameType) -> None:
        """Hear of a number that was read from a tensor that wants a gradient."""
        users = users_frame(frame)
        if users is None or not isinstance(value, float | int) or not torch.is_grad_enabled():
            return
        self._reads.append(_Read(op, value, place_of(users)))
        if not self._looks:
            self._looks = True
            for name in _ARITHMETIC:
                self._patches.replace(Tensor, name, self._maker)

    def _maker(self, original: Any) -> Any:
        threads = self._notebook.threads

        def arithmetic(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if len(args) > 1 and type(args[1]) in (float, int) and threads.mine.looks:
                self._notebook.note(self._look, args[1], result, sys._getframe(1))
            return result

        return arithmetic

    def _look(self, number: Any, result: Any, frame: FrameType) -> None:
        if not isinstance(result, Tensor) or not result.requires_grad or not self._reads:
            return
        if not torch.is_grad_enabled():
            return
        users = users_frame(frame)
        if users is None:
            return
        for read in reversed(self._reads):
            same = number is read.value and type(number) is float
            if same or self._is_on_line(read, users):
                self._note(read, place_of(users), same)
                return

    def _is_on_line(self, read: _Read, users: FrameType) -> bool:
        """Whether the latest read was made on the line that now computes."""
        at = (users.f_code.co_filename, users.f_lineno)
        return read is self._reads[-1] and at == (read.place.path, read.place.line)

    def _note(self, read: _Read, used: Place, certain: bool) -> None:
        key = (read.place.path, read.place.line, used.path, used.line)
        lost = self._lost.setdefault(key, _Lost(read, used, certain))
        lost.count += self._notebook.here.weight

    def fields(self) -> dict[str, Any]:
        """Return every read that was used so."""
        found = [
            LostGradient(lost.read.op, lost.read.place, lost.used, lost.count, lost.certain)
            for lost in self._lost.values()
        ]
        return {"lost_gradients": tuple(found)}
