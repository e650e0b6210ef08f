"""A contender that fails is a row with its error; and a run that takes too long ends in time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

_LONGEST_ERROR = 300


class Attempt(Generic[T]):
    """The value of a call, or the text of what it raised.

    Attributes:
        value: None if it failed.
        error: Empty if it did not.
    """

    __slots__ = ("error", "value")

    def __init__(self, run: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error = ""
        try:
            self.value = run()
        except Exception as error:  # noqa: BLE001 - it becomes a row of the result, in full view
            self.error = error_text(error)


def error_text(error: BaseException) -> str:
    """Return the error's type and first lines, on one line."""
    text = " ".join(str(error).split())
    shown = text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 3]}..."
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


class Deadline:
    """When to stop beginning new things.

    Attributes:
        budget_s: Seconds from the start; None never ends.
    """

    def __init__(self, budget_s: float | None, clock: Callable[[], float] = monotonic) -> None:
        self.budget_s = budget_s
        self._clock = clock
        self._began = clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def refusal(self) -> str:
        """Why nothing more may begin; empty while there is time."""
        if self.budget_s is None or self.spent_s < self.budget_s:
            return ""
        return f"not run: the budget of {self.budget_s:g} s was spent"
