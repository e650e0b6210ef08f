"""A tensor is no sequence to CPython, and has to stay none while `Tensor.__getitem__` is replaced.

Its class answers `x[i]` as a mapping does (`mp_subscript`), so `PySequence_Check` says no, and
`torch.tensor([a, b])` takes `a` for a number. Setting `__getitem__` on a class from Python fills
the slot of sequences as well (`sq_item`), in the class and in those derived from it, and taking it
away again leaves it filled: then torch asks the number for its length, and raises. So the slot is
emptied each time. Where a type lies otherwise in memory than expected, nothing may be replaced.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from torch import Tensor

_WORD = ctypes.sizeof(ctypes.c_void_p)
_NAME, _BASIC_SIZE, _AS_SEQUENCE = 3 * _WORD, 4 * _WORD, 13 * _WORD  # in a PyTypeObject
_ITEM = 3 * _WORD  # in its PySequenceMethods
_is_sequence = ctypes.pythonapi.PySequence_Check
_is_sequence.argtypes = (ctypes.py_object,)


def can_stay_no_sequence() -> bool:
    """Whether the slot is where it is expected; tried on classes of our own."""

    class Without:
        pass

    class With:
        def __getitem__(self, index: object) -> object:
            return index

    for kind in (Without, With):
        name = ctypes.c_char_p.from_address(id(kind) + _NAME).value
        size = ctypes.c_ssize_t.from_address(id(kind) + _BASIC_SIZE).value
        if name != kind.__name__.encode() or size != kind.__basicsize__:
            return False
    if _item_of(Without).value or not _item_of(With).value:
        return False
    _item_of(With).value = None
    return not _is_sequence(With()) and With()[1] == 1


def stay_no_sequence() -> None:
    """Empty the slot of `Tensor` and of the classes that take their `__getitem__` from it."""
    for kind in _family(Tensor):
        item = _item_of(kind)
        if item.value:
            item.value = None


def _family(kind: type) -> Iterator[type]:
    yield kind
    derived: type
    for derived in kind.__subclasses__():
        if "__getitem__" not in vars(derived):
            yield from _family(derived)


def _item_of(kind: type) -> ctypes.c_void_p:
    methods = ctypes.c_void_p.from_address(id(kind) + _AS_SEQUENCE).value
    return ctypes.c_void_p.from_address((methods or 0) + _ITEM)
