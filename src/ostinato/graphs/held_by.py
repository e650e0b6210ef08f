"""What stands behind an object of Python's own: the dict of `d.get`, the function of a partial.

Such objects are made in C or in the standard library, so that `reach.py` finds nothing of the
user's in their attributes.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import ChainMap, UserDict, UserList
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import torch

_IN_C = (types.BuiltinMethodType, types.MethodWrapperType)
_WRITTEN_IN_PYTHON = (ChainMap, UserDict, UserList)
_WEAK = (WeakKeyDictionary, WeakValueDictionary, WeakSet)
_TRAINING = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_SHOWING = (types.MappingProxyType, KeysView, ValuesView, ItemsView)


def held_by(value: object) -> Iterator[object]:
    """Yield what a call or a look at `value` goes on to; nothing for what is none of these."""
    if isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, _IN_C):
        if not isinstance(value.__self__, Iterator):  # of which nothing can be compared
            yield value.__self__
    elif isinstance(value, functools.partialmethod):
        yield from (value.func, *value.args, value.keywords)
    elif isinstance(value, functools.singledispatchmethod):
        yield value.dispatcher  # whose cells hold the functions for each type
    elif _is_bound_for_type(value):
        yield from (value._obj, value._unbound)  # type: ignore[attr-defined]
    elif is_of_training(value):
        yield vars(value)  # a rate that is set anew, and what a step adds to its state
    elif isinstance(value, _WRITTEN_IN_PYTHON):
        yield from vars(value).values()
    elif isinstance(value, _WEAK):
        yield getattr(value, "data", None)
    elif isinstance(value, _SHOWING):
        yield from gc.get_referents(value)
    yield getattr(value, "__wrapped__", None)


def is_of_training(value: object) -> bool:
    """Whether `value` keeps the state of a training in attributes: moments, rates, scales."""
    return isinstance(value, _TRAINING)


def _is_bound_for_type(value: object) -> bool:
    # Python 3.14 has a class of its own for a `singledispatchmethod` that is bound to an object.
    return type(value).__name__ == "_singledispatchmethod_get"
