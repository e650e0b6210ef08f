"""Signals wait while a run is watched or recorded, so that they cannot leave half of it behind.

A Python signal handler may raise between any two instructions, also inside an `__exit__`: a mode, a
hook or a patch of ours would then stay for good. So handlers wait while our own code runs. The
callable's code is interrupted at once, as it is in an eager run: what it raises comes up through
our code like an error of its own. What waits is handed on before and after each call of torch that
is watched, at the next run, or when all is put back.

Handlers run in the main thread alone; in other threads there is nothing to hold up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Torch calls these in the middle of the callable's code, with a mode of its own set aside.
_CALLED_BY_TORCH = frozenset({"__torch_dispatch__", "__torch_function__"})
# The profiling hook. A handler may raise in it as in the callable; Python then takes it away.
_LEAVES_NOTHING_HALF_DONE = frozenset({"on_event"})


class _Waiting:
    """Stands in for the handlers of all signals from Python.

    Attributes:
        is_over: Handlers are called as if we were not there. So it is while they are exchanged one
            by one, and an interrupted exchange does no harm.
        escaped: What a handler raised in the callable's code, and that code let through.
    """

    def __init__(self) -> None:
        self.is_over = True
        self.escaped: BaseException | None = None
        self._raised: BaseException | None = None
        self._handlers: dict[int, _Handler] = {}
        self._noted: list[int] = []

    def begin(self) -> None:
        """Take the place of the handlers."""
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            while isinstance(handler, _StandIn):  # left by an interrupted exchange
                handler = handler.behind(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, _StandIn(self))
        self.is_over = False

    def end(self) -> None:
        """Put the handlers back, and call those that waited."""
        try:
            self._put_back()
        except BaseException:  # a handler's: from here on they are called at once
            self._put_back()
            raise
        finally:
            self._call_all(sys._getframe(1))

    def _call_all(self, frame: FrameType) -> None:
        """Call the handlers that waited, also those behind one that raises."""
        try:
            while self._noted:
                number = self._noted.pop(0)
                self._handlers[number](number, frame)
        finally:
            if self._noted:
                self._call_all(frame)

    def _put_back(self) -> None:
        self.is_over = True
        for number, handler in self._handlers.items():
            found = signal.getsignal(number)  # the callable may have set another
            if isinstance(found, _StandIn) and found.waiting is self:
                signal.signal(number, handler)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:
            self._handlers[number](number, frame)
        elif _is_the_callables(frame):
            self._call(number, frame)
        elif number not in self._noted:
            self._noted.append(number)

    def hand_on(self) -> None:
        """Call the handlers that waited; what they raise goes up through the callable."""
        while self._noted:
            self._call(self._noted.pop(0), sys._getframe(1))

    def _call(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            self._raised = error
            raise

    def note_escape(self, error: BaseException) -> None:
        """Note an error that the callable let through, if a handler raised it."""
        if error is self._raised:
            self.escaped = error


class _StandIn:
    """The handler of one signal meanwhile."""

    def __init__(self, waiting: _Waiting) -> None:
        self.waiting = waiting

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting.on_signal(number, frame)

    def behind(self, number: int) -> _Handler:
        """Return the handler in whose place it is."""
        return self.waiting._handlers[number]


def handler_behind(handler: object, number: int) -> object:
    """Return the handler that waits behind `handler`, or `handler` itself where none does."""
    return handler.behind(number) if isinstance(handler, _StandIn) else handler


class _Here(threading.local):
    waiting: _Waiting | None = None


_here = _Here()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold up Python's signal handlers in the block, but for the callable's own code.

    Raises:
        BaseException: What a handler raised, also where the block swallowed it.
    """
    if _here.waiting is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = _Waiting()
    try:
        waiting.begin()
        _here.waiting = waiting
        yield
    finally:
        _here.waiting = None
        waiting.end()
    if waiting.escaped is not None:
        raise waiting.escaped


def run_interruptibly(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Call the user's callable; signals that come while its code runs are handled at once."""
    try:
        hand_on_signals()
        return fn(*args, **(kwargs or {}))
    except BaseException as error:
        if _here.waiting is not None:
            _here.waiting.note_escape(error)
        raise


def hand_on_signals() -> None:
    """Handle the signals that wait, here where nothing of ours is half done."""
    if _here.waiting is not None:
        _here.waiting.hand_on()


def _is_the_callables(frame: FrameType | None) -> bool:
    """Whether the code that runs was called by the callable, with no code of ours between.

    The profiling hook, and what it calls, does not count: nothing but a later call of torch would
    hand on what came then, and the callable may make none.
    """
    depth, is_ours = 0, False
    while frame is not None:
        code = frame.f_code
        if code is run_interruptibly.__code__:
            return depth > 0 and not is_ours
        if code.co_filename.startswith(_OURS):
            is_ours = code.co_name not in _LEAVES_NOTHING_HALF_DONE
        elif code.co_name in _CALLED_BY_TORCH:
            return False
        frame = frame.f_back
        depth += 1
    return False
