"""Objectives as they are declared on a command line: "ttft=0.4", "ttft.long=2", "itl.short=0.05".

A number is seconds. "off" takes a promise back; a class that is named wins over all classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ostinato.errors import UsageError
from ostinato.serve.slo.objectives import LENGTH_CLASSES, Objectives

_KINDS = ("ttft", "itl")


def declared(texts: Sequence[str]) -> Objectives:
    """Return the default objectives with what these texts change.

    Raises:
        UsageError: OST6030, a text that is none or a number that makes no sense.
    """
    default = Objectives()
    seconds = {"ttft": dict(default.ttft_s), "itl": dict(default.itl_s)}
    read = [_read(text) for text in texts]
    # Those for all classes first, whatever the order on the command line.
    for kind, name, value in sorted(read, key=lambda each: each[1] is not None):
        for each in LENGTH_CLASSES if name is None else (name,):
            if value is None:
                seconds[kind].pop(each, None)
            else:
                seconds[kind][each] = value
    return Objectives(ttft_s=seconds["ttft"], itl_s=seconds["itl"])


def _read(text: str) -> tuple[str, str | None, float | None]:
    """Return kind, length class or None for all, seconds or None for off."""
    name, equals, value = text.partition("=")
    kind, dot, length_class = name.partition(".")
    is_known = kind in _KINDS and (not dot or length_class in LENGTH_CLASSES)
    if not equals or not is_known:
        names = [*_KINDS, *(f"{a}.{b}" for a, b in product(_KINDS, LENGTH_CLASSES))]
        raise UsageError(
            f"an objective is NAME=SECONDS, got {text!r}",
            code="OST6030",
            remedy=f"write one such as ttft=0.4 or itl.long=0.1; names are {', '.join(names)}",
        )
    if value == "off":
        return kind, length_class or None, None
    try:
        return kind, length_class or None, float(value)
    except ValueError:
        raise UsageError(
            f"the objective {name!r} must be a number of seconds or off, got {value!r}",
            code="OST6030",
            remedy=f"write it as {name}=0.4, or {name}=off",
        ) from None
