"""A call that ends the interpreter ends its own run, and not the check.

`sys.exit` raises something that a check can catch; `os._exit` and the `exec` family would take the
process away with an exit status that reads like a verdict. Meanwhile they raise, and are remembered
even where the code goes on, or another thread was at work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ostinato.doctor.check.line import is_raised_by_user

_ENDS = ("_exit", "execv", "execve")
"""All others of their kind come down to these."""


class ProcessEnd(SystemExit):
    """The code asked for the end of this process, or for another program in its place."""


@contextmanager
def process_goes_on() -> Iterator[list[ProcessEnd]]:
    """Raise where this process would end or be replaced; yields what was asked for, in order.

    A forked child is let go.
    """
    asked: list[ProcessEnd] = []
    before = {name: getattr(os, name) for name in _ENDS}
    for name, original in before.items():
        setattr(os, name, _refusing(name, original, asked))
    try:
        yield asked
    finally:
        for name, original in before.items():
            setattr(os, name, original)


def _refusing(name: str, original: Callable[..., Any], asked: list[ProcessEnd]) -> Any:
    pid = os.getpid()

    def end(*args: Any, **kwargs: Any) -> NoReturn:
        if os.getpid() != pid:
            original(*args, **kwargs)
        words = ", ".join(repr(value) for value in args[:1] or kwargs.values())
        asked.append(ProcessEnd(f"os.{name}({words})"))
        raise asked[-1]

    return end


def is_of_the_call(error: BaseException) -> bool:
    """Whether the code raised it; only a KeyboardInterrupt may have come from outside."""
    return not isinstance(error, KeyboardInterrupt) or is_raised_by_user(error)
