"""A call that ends the interpreter ends its own run, and not the check.

`sys.exit` raises something that a check can catch; `os._exit`, the `exec` family and a signal to
oneself would take the process away with an exit status that may read like a verdict. Meanwhile they
raise, and are remembered even where the code goes on, or another thread was at work.
"""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ostinato.doctor.check.interrupted import interrupts_are_told
from ostinato.doctor.check.pressing import handlers_of_interrupts
from ostinato.graphs.interrupts import hand_on_signals

_HARMLESS = frozenset({signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, 0})


class ProcessEnd(SystemExit):
    """The code asked for the end of this process, or for another program in its place."""


def _is_deadly(number: int = signal.SIGINT) -> bool:
    """Whether a signal that this process gets now ends it."""
    if number == signal.SIGINT:  # whose handler is Python's own, unless the program has another
        *_, handler = handlers_of_interrupts()
        return handler in (signal.default_int_handler, signal.SIG_DFL, None)
    return number not in _HARMLESS and signal.getsignal(number) is signal.SIG_DFL


def _is_to_us(process: int, number: int) -> bool:
    return process in (os.getpid(), 0, -os.getpgrp(), -1) and _is_deadly(number)


def _is_to_our_group(group: int, number: int) -> bool:
    return group in (os.getpgrp(), 0) and _is_deadly(number)


def _is_to_our_thread(_: int, number: int) -> bool:
    return _is_deadly(number)


_ENDS: tuple[tuple[Any, str, Callable[..., bool]], ...] = (
    *((os, name, lambda *_, **__: True) for name in ("_exit", "abort", "execv", "execve")),
    (os, "kill", _is_to_us),
    (os, "killpg", _is_to_our_group),
    (signal, "raise_signal", _is_deadly),
    (signal, "pthread_kill", _is_to_our_thread),
    (_thread, "interrupt_main", _is_deadly),
)
"""All others of their kind come down to these; each with whether such a call is an end."""


@contextmanager
def process_goes_on() -> Iterator[list[ProcessEnd]]:
    """Raise where this process would end or be replaced; yields what was asked for, in order.

    A forked child is let go, and ends where it would come out of here: one check gives one answer.
    What the user interrupts is told as `Pressed`.
    """
    asked: list[ProcessEnd] = []
    pid, leave = os.getpid(), os._exit
    with ExitStack() as stack:
        stack.enter_context(interrupts_are_told())
        for owner, name, is_end in _ENDS:
            original = getattr(owner, name)
            if isinstance(original, _Refusing):  # the code may hold it from an import before
                original.asked.append(asked)
                stack.callback(original.asked.pop)
                continue
            said = f"{owner.__name__}.{name}"
            setattr(owner, name, _Refusing(said, original, is_end, asked))
            stack.callback(setattr, owner, name, original)
        try:
            yield asked
        finally:
            if os.getpid() != pid:
                leave(0)


class _Refusing:
    """Stands in the place of a function that ends this process, and raises instead."""

    def __init__(
        self,
        said: str,
        original: Callable[..., Any],
        is_end: Callable[..., bool],
        asked: list[ProcessEnd],
    ) -> None:
        self._said = said
        self._original = original
        self._is_end = is_end
        self._pid = os.getpid()
        self.asked = [asked]  # the innermost block is told

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() != self._pid or not _holds(self._is_end, args, kwargs):
            result = self._original(*args, **kwargs)
            hand_on_signals()  # one to oneself is handled before the call returns
            return result
        end = ProcessEnd(f"{self._said}({_shown(self._said, args, kwargs)})")
        self.asked[-1].append(end)
        raise end


def _shown(said: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    values = args[:1] if "exec" in said else args  # and not all that the other program is given
    words = (each.name if isinstance(each, signal.Signals) else repr(each) for each in values)
    return ", ".join((*words, *(f"{name}={value!r}" for name, value in kwargs.items())))


def _holds(is_end: Callable[..., bool], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        return is_end(*args, **kwargs)
    except (TypeError, ValueError):  # odd arguments are the original's to judge
        return False
