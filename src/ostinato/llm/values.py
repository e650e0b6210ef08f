"""Values that somebody gave by name, checked: one wording for the engine's options and parameters.

`config` and `params` say what each value may be; here stands how that is asked, and how a refusal
reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from numbers import Integral, Real
from threading import TIMEOUT_MAX
from typing import Any

from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.refusals import shown

_LONGEST_NAME = 100  # of an option that might have been meant


@dataclass(frozen=True, slots=True)
class Check:
    """Refuses values of the wrong type (`WrongTypeError`) or out of range (`UsageError`).

    Attributes:
        code: Of every refusal.
    """

    code: str

    def count(
        self, name: str, value: object, least: int | None = None, most: int | None = None
    ) -> int:
        """Require a whole number within bounds, and return it as an int; None: no bound."""
        number = whole(value)
        if number is None:
            raise self.wrong_type(name, "a whole number", value)
        if least is not None and number < least:
            raise self.out_of_range(name, f"at least {least}", value)
        if most is not None and number > most:
            raise self.out_of_range(name, f"at most {most}", value)
        return number

    def number(
        self, name: str, value: object, low: float, high: float, *, above_low: bool = False
    ) -> float:
        """Require a finite number from `low` (or above it) to `high`, and return it."""
        if not isinstance(value, Real) or isinstance(value, bool):
            raise self.wrong_type(name, "a number", value)
        try:
            number = float(value)
        except OverflowError:  # a whole number too large for any float
            number = inf
        is_above = low < number if above_low else low <= number
        if not (isfinite(number) and is_above and number <= high):
            bound = f"{'above' if above_low else 'at least'} {low:g}"
            bound += f" and at most {high:g}" if high < inf else ""
            bound += "" if isfinite(number) else " and finite"
            raise self.out_of_range(name, bound, value)
        return number

    def flag(self, name: str, value: object) -> None:
        """Require True or False."""
        if not isinstance(value, bool):
            raise self.wrong_type(name, "True or False", value)

    def choice(self, name: str, value: object, choices: Sequence[str]) -> None:
        """Require one of `choices`."""
        if value not in choices:
            raise self.out_of_range(name, f"one of {', '.join(choices)}", value)

    def out_of_range(self, name: str, wanted: str, value: object) -> UsageError:
        """Return the refusal of a value that is not `wanted`."""
        return UsageError(
            f"{name} must be {wanted}, got {shown(value)}",
            code=self.code,
            remedy=f"let {name} be {wanted}, or leave it out",
        )

    def wrong_type(self, name: str, wanted: str, value: object) -> WrongTypeError:
        """Return the refusal of a value that is of another type."""
        return WrongTypeError(
            f"{name} must be {wanted}, got {shown(value)}",
            code=self.code,
            remedy=f"pass {wanted} as {name}, or leave it out",
        )


def whole(value: object) -> int | None:
    """Return a whole number as an int, numpy's own included; None for what is none, as True is."""
    if type(value) is int:  # nearly always: asking for `Integral` costs ten times as much
        return value
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return None


class WholeNumbers(tuple[int, ...]):
    """Ints that `whole_numbers` has judged: whoever meets them again need not look at each."""

    __slots__ = ()


def whole_numbers(values: Sequence[object]) -> WholeNumbers | None:
    """Return whole numbers as ints; None if one of them is none.

    They are judged by their types, which are few: a prompt may have many thousand tokens.
    """
    kinds = set(map(type, values))
    if kinds <= {int}:
        return WholeNumbers(values)  # type: ignore[arg-type]
    if bool in kinds or not all(issubclass(kind, Integral) for kind in kinds):
        return None
    numbers: Any = values
    return WholeNumbers(map(int, numbers))


def read_timeout(name: str, seconds: object) -> float | None:
    """Return a time to wait, in seconds; None: as long as it takes.

    Raises:
        UsageError: OST5031, it is negative, no number or longer than can be waited.
        WrongTypeError: OST5031, it is neither.
    """
    return None if seconds is None else Check("OST5031").number(name, seconds, 0.0, TIMEOUT_MAX)


def require_known(given: Iterable[object], known: Sequence[str], what: str, code: str) -> None:
    """Refuse a name that is none of `known`, and name the nearest.

    Args:
        given: Names as they were given.
        known: Names that there are.
        what: "sampling option".
        code: Of the refusal.

    Raises:
        UsageError: There is such a name.
    """
    for name in given:
        if name not in known:
            is_word = isinstance(name, str) and len(name) <= _LONGEST_NAME
            near = get_close_matches(str(name), known, n=1) if is_word else []
            every = f"take it out; the options are {', '.join(known)}"
            raise UsageError(
                f"no {what} is called {shown(name)}",
                code=code,
                remedy=f"did you mean {near[0]}?" if near else every,
            )
