"""The frame that each thread is in, without a chance to stop the program that is looked at.

`sys._current_frames` holds the interpreter's lock of threads while it makes its dictionary. If the
garbage collector runs just then, a finalizer or a callback of it may give the GIL to a thread that
is about to begin or to end: that one waits for the lock of threads with the GIL in its hand, and
nothing in the process ever runs again (CPython's issue 106883; 3.11.7 still has it).

So the collector is off meanwhile. It is switched off and back by functions of C that call one
another: between two lines of Python another thread could run, which may have its own opinion of
whether the collector is on.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from itertools import chain, tee
from operator import call
from types import FrameType
from typing import Any, cast

_switch_off = ctypes.PyDLL(None).PyGC_Disable  # returns whether it was on, holds the GIL
_switch_off.argtypes = ()
_switch_off.restype = ctypes.c_int
_OFF_AS_IT_WAS, _ON_AGAIN = int, gc.enable
_restoring = (_OFF_AS_IT_WAS, _ON_AGAIN).__getitem__


def current_frames() -> dict[int, FrameType]:
    """Return the frame of every thread by its number, as `sys._current_frames` does."""
    was_on, again = tee(map(call, (_switch_off,)))
    frames = map(call, (sys._current_frames,))
    restored: Any = map(call, map(_restoring, again))
    return cast(dict[int, FrameType], tuple(chain(was_on, frames, restored))[1])
