"""Whether a call of a tensor's method is worth a look, asked before anything else is done.

Indexing, `to`, `reshape` and `contiguous` are called some hundred times in a step, and hardly one
of the calls makes the host wait or copies anything. So a gate stands in the place of such a method:
it hands a call on to the original, and to a function of ours only where the arguments say so. In C
(`_gate.c`) that costs some 30 ns; the twin here is for machines without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

Make = Callable[[Any], Any]

_native: Any = None
with suppress(ImportError):  # it was not built
    # By name, for it is no file of Python's that types or import contracts could know.
    _native = import_module("ostinato.doctor.collect._gate")

IS_NATIVE: bool = _native is not None
"""Whether gates run in C."""

CALLER = 1 if IS_NATIVE else 2
"""How many frames above a function that looks the line lies that called."""


class Question(Enum):
    """What a gate asks of a call; numbered as in `_gate.c`."""

    IS_MASK = 0
    IS_ONE_OF = 1
    IS_LOOSE = 2
    NOTHING = 3


def if_by_a_mask(make: Make) -> Make:
    """Return a maker of an indexing that looks where an index has a boolean tensor in it."""
    return lambda original: gate(Question.IS_MASK, original, make(original))


def if_given(kinds: tuple[type, ...], make: Make) -> Make:
    """Return a maker of a method that looks where it gets keywords, or one of `kinds` exactly."""
    return lambda original: gate(Question.IS_ONE_OF, original, make(original), kinds)


def if_loose(make: Make) -> Make:
    """Return a maker of a method that looks where the tensor does not lie contiguously."""
    return lambda original: gate(Question.IS_LOOSE, original, make(original))


def if_looked(make: Make) -> Make:
    """Return a maker of a function that looks at every call, but for those passed over."""
    if _native is None:
        return make
    return lambda original: gate(Question.NOTHING, original, make(original))


def begin() -> None:
    """Begin another watch: every thread is looked at until it says otherwise."""
    if _native is not None:
        _native.begin()


def pass_over(whether: bool) -> None:
    """Let the calls of this thread through every gate without a look from now on, or no longer."""
    if _native is not None:
        _native.pass_over(whether)


def be_inside(whether: bool) -> None:
    """Say that this thread is in a step from now on, or no longer."""
    if _native is not None:
        _native.be_inside(whether)


def asks_inside(in_python: Callable[[], bool]) -> Callable[[], bool]:
    """Return what tells whether the thread that asks is in a step; `in_python` where C does not."""
    return in_python if _native is None else _native.is_inside


def gate(question: Question, original: Any, look: Any, kinds: tuple[type, ...] = ()) -> Any:
    """Return what answers by `look` where a call is worth it, and by `original` elsewhere."""
    if _native is not None:
        return _native.gate(question.value, original, look, kinds)
    return in_python(question, original, look, kinds)


def in_python(question: Question, original: Any, look: Any, kinds: tuple[type, ...]) -> Any:
    """Return the twin of a gate in C."""
    if question is Question.IS_MASK:

        def indexing(tensor: Any, index: Any, *value: Any) -> Any:
            parts = index if type(index) is tuple else (index,)
            for part in parts:
                if type(part) is Tensor and part.dtype is torch.bool:
                    return look(tensor, index, *value)
            return original(tensor, index, *value)

        return indexing
    if question is Question.IS_ONE_OF:

        def moving(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs or any(type(each) in kinds for each in args):
                return look(tensor, *args, **kwargs)
            return original(tensor, *args, **kwargs)

        return moving

    def copying(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, Tensor) and not tensor.is_contiguous():
            return look(tensor, *args, **kwargs)
        return original(tensor, *args, **kwargs)

    return copying
