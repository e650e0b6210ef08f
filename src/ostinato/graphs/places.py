"""Places that a run reads, and containers whose length counts: what a watch compares."""

from __future__ import annotations

import gc
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum, torch.dtype, torch.device)
_EXACTLY = frozenset(_PLAIN)


class _PlainType(type):
    def __instancecheck__(cls, value: object) -> bool:
        if type(value) in _EXACTLY:
            return True
        return isinstance(value, _PLAIN) and not carries_more(value)


class PLAIN(metaclass=_PlainType):
    """Values whose change we can name; anything else is either walked into or left alone.

    Asked like a tuple of types: `isinstance(value, PLAIN)`.
    """


def carries_more(value: object) -> bool:
    """Whether a number or string is of a class of its own that gives each object attributes.

    Two of them may be equal and behave differently: an `int` with a `gain`.
    """
    if type(value) in _EXACTLY or isinstance(value, Enum):
        return False
    return hasattr(value, "__dict__") or any(
        vars(kind).get("__slots__") for kind in type(value).__mro__
    )


def same_plain(then: object, now: object) -> bool:
    """Whether two plain values are one to any code: 0.0 and -0.0 are not, two NaNs are."""
    if not isinstance(then, PLAIN) or type(then) is not type(now):
        return False
    if isinstance(then, complex) and isinstance(now, complex):
        return _bits(then.real, then.imag) == _bits(now.real, now.imag)
    if isinstance(then, float) and isinstance(now, float):
        return _bits(then) == _bits(now)
    return bool(then == now)


def _bits(*numbers: float) -> bytes:
    return struct.pack(f"{len(numbers)}d", *numbers)


ABSENT = NotImplemented
"""Stands for "there is nothing in this place", here and in `_unchanged.c`."""


def entries_of(kind: type) -> dict[str, Any]:
    """Return the dict behind a class: `vars(kind)` only shows it, and tells of no change."""
    shown = vars(kind)
    return next(held for held in gc.get_referents(shown) if isinstance(held, dict))


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere a run reads: `container[key]`, or the attribute `container.key`.

    Attributes:
        container: A dict or a list; else a closure cell, a class or an object with slots.
        key: Dict key, list index, or attribute name.
        value: What was there; `ABSENT` for nothing.
        name: How to say it: "model.layers.0.weight", "scale (a global)".
    """

    container: Any
    key: Any
    value: Any
    name: str

    def now(self) -> Any:
        """Read what is there now."""
        if isinstance(self.container, dict):
            return self.container.get(self.key, ABSENT)
        if isinstance(self.container, list):
            return self.container[self.key] if self.key < len(self.container) else ABSENT
        return getattr(self.container, self.key, ABSENT)


@dataclass(frozen=True, slots=True)
class Size:
    """A container whose length counts.

    Attributes:
        held: The container.
        name: How to say it.
        keys: Of attributes, the names present; others may come unless a run reads them.
        is_of_weights: Whether it holds the parameters, buffers or parts of a module.
    """

    held: Any
    name: str
    keys: frozenset[str] | None = None
    is_of_weights: bool = False
