"""Places that a run reads, and containers whose length counts: what a watch compares."""

from __future__ import annotations

import gc
import operator
import struct
from collections import OrderedDict
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


def same_key(then: object, now: object) -> bool:
    """Whether two equal keys are one to any code: 1, 1.0 and True are not."""
    if then is now:
        return True
    if type(then) is not type(now):
        return False
    if isinstance(then, float | complex):
        return same_plain(then, now)
    if isinstance(then, tuple | list) and isinstance(now, tuple | list):
        alike = len(then) == len(now)
        # As a rule they are the same objects, and this is asked on calls.
        return alike and (all(map(operator.is_, then, now)) or all(map(same_key, then, now)))
    if isinstance(then, frozenset) and isinstance(now, frozenset):
        return then == now and all(any(same_key(one, other) for other in now) for one in then)
    # As a key a tensor counts as itself, and its `==` has many answers.
    return not isinstance(then, torch.Tensor) and bool(then == now)


def _bits(*numbers: float) -> bytes:
    return struct.pack(f"{len(numbers)}d", *numbers)


LARGEST_CONTAINER = 4096
"""Of one with more entries only the length is compared."""

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
        """Read what is there now; what raises when it is read is `ABSENT`."""
        # Through the base classes, as in C: a subclass may translate what it is asked.
        container, key = self.container, self.key
        try:
            if isinstance(container, dict):
                return dict.get(container, key, ABSENT)
            if isinstance(container, list):
                return list.__getitem__(container, key)
            return getattr(container, key, ABSENT)
        except Exception:  # noqa: BLE001 - the user's, of whatever type
            return ABSENT


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

    def now(self, *, orders_attributes: bool = False) -> int | tuple[Any, ...]:
        """Return what counts of it now: its length; of a dict whose order counts its keys.

        Args:
            orders_attributes: Whether the order of attributes counts, too.
        """
        held = self.held
        counts = self.keys is None or orders_attributes
        if not isinstance(held, dict) or not counts or len(held) > LARGEST_CONTAINER:
            return len(held)
        keys = keys_of(held)
        # One key lies in its place; but it may be equal to another.
        return keys if len(keys) > 1 or any(type(key) is not str for key in keys) else len(keys)


def keys_of(held: dict[Any, Any]) -> tuple[Any, ...]:
    """Return the keys in their order, whatever a subclass says of itself."""
    base: Any = OrderedDict if isinstance(held, OrderedDict) else dict
    return tuple(base.__iter__(held))
