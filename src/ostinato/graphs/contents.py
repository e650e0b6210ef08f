"""Objects whose contents change in place, by no assignment that a watch could see.

Numpy arrays, bytearrays, sets and deques. `Contents` answers with the same object as long as
nothing changed, so that the watch compares it like any other place. What is too large is refused.
"""

from __future__ import annotations

import array
from collections import deque
from typing import Any

import numpy as np

_MOST_BYTES = 4096
_MOST_ITEMS = 4096

BUFFERS: tuple[Any, ...] = (np.ndarray, bytearray, array.array)
"""Memory that Python code writes behind torch's back."""
UNORDERED = (set, deque)


class Contents:
    """What an array, a set or a deque holds, as one comparable value.

    Args:
        held: One of `BUFFERS` or `UNORDERED`, for which `too_large` says "".
    """

    __slots__ = ("_kept", "held")

    def __init__(self, held: Any) -> None:
        self.held = held
        self._kept = _summary(held)

    @property
    def now(self) -> object:
        """The contents: the same object as the last time while they are the same."""
        found = _summary(self.held)
        # Items by identity: an item's `==` may be that of a tensor.
        if not _same(found, self._kept):
            self._kept = found
        return self._kept


def _summary(held: Any) -> Any:
    if isinstance(held, set):
        return frozenset(held)
    if isinstance(held, deque):
        return tuple(held)
    if isinstance(held, np.ndarray):
        return f"{held.dtype}{list(held.shape)} {_hash(held.tobytes())}"
    return f"{len(held)} {_hash(bytes(held))}"


def _hash(data: bytes) -> str:
    return f"#{hash(data) & 0xFFFFFFFF:08x}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return bool(one == other)
    if len(one) != len(other):
        return False
    if isinstance(one, frozenset):
        return {id(item) for item in one} == {id(item) for item in other}
    return all(a is b for a, b in zip(one, other, strict=True))


def is_fixed(held: object) -> bool:
    """Whether nobody can write to an array: it was made read-only, and so was what it views."""
    while isinstance(held, np.ndarray):
        if held.flags.writeable:
            return False
        held = held.base
    return held is None or isinstance(held, bytes)


def too_large(held: Any) -> str:
    """Say why the contents cannot be compared before each replay; "" if they can."""
    if isinstance(held, UNORDERED):
        return ""
    if isinstance(held, np.ndarray) and held.dtype.hasobject:
        return "it holds Python objects"
    size = held.nbytes if isinstance(held, np.ndarray) else memoryview(held).nbytes
    return f"its {size} bytes are too many to compare" if size > _MOST_BYTES else ""
