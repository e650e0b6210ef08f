"""Every exception Ostinato raises, by who must act.

OstinatoError
├── UsageError      your call is wrong               -> change the call
├── CaptureError    your function cannot be recorded -> change the function, or run it eagerly
├── StaleLease      you kept a leased output too long -> read it before the next call, or own it
├── ResourceError   the machine is short of something -> free it, or ask for less
└── InternalError   a bug in Ostinato                -> please report it

Falling back to eager is not an error: it is an outcome with a reason (see `graphs/reasons.py`).
"""

from __future__ import annotations


class OstinatoError(Exception):
    """Base of all Ostinato exceptions.

    Attributes:
        code: Stable identifier such as "OST1002", or the word of a reason such as "host-sync";
            `ostinato explain CODE` describes it.
        remedy: One imperative sentence: what to do next.
        reason: The word of the reason for which a call cannot be recorded; empty where none is.
    """

    def __init__(self, problem: str, *, code: str, remedy: str, reason: str = "") -> None:
        super().__init__(problem)
        self.code = code
        self.remedy = remedy
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.code}: {self.args[0]}\n"
            f"  try:  {self.remedy}\n"
            f"  more: ostinato explain {self.code}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments: without this, an error cannot cross a process boundary.
        return (_rebuild, (type(self), self.args[0], self.code, self.remedy, self.reason))


def _rebuild(
    kind: type[OstinatoError], problem: str, code: str, remedy: str, reason: str
) -> OstinatoError:
    return kind(problem, code=code, remedy=remedy, reason=reason)


class UsageError(OstinatoError, ValueError):
    """The call is wrong, and changing the call fixes it."""


class WrongTypeError(UsageError, TypeError):
    """The call is wrong because a value has the wrong type."""


class CaptureError(OstinatoError, RuntimeError):
    """The function cannot be recorded; it can still run eagerly."""


class StaleLease(OstinatoError, RuntimeError):
    """A leased output was read after its recording ran again and overwrote it."""


class ResourceError(OstinatoError, RuntimeError):
    """The machine is short of something: free it, or ask for less."""


class InternalError(OstinatoError, RuntimeError):
    """A bug in Ostinato; please report it with the text of the error."""
