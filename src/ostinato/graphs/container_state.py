"""What a dict, list, deque or set holds at one moment, to compare with later and to put back.

Compared and put back by identity, and through the base classes: a subclass may translate, refuse or
count what it is asked.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

from torch import Tensor, nn

from ostinato.graphs.places import ABSENT, keys_of, same_key

_WORD = ctypes.sizeof(ctypes.c_ssize_t)
_FINGER = object.__basicsize__ + 5 * _WORD
"""Where a set keeps from where on `pop` looks: behind its counts, its table and its hash."""


def is_container(value: object) -> bool:
    """Whether a run may change `value` in place, and `state_of_container` can undo it."""
    return isinstance(value, dict | list | deque | set)


def nested(roots: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the containers within containers, however deep, with their paths; not the roots."""
    pending = list(roots)
    seen = {id(held) for _, held in pending}
    while pending:
        name, held = pending.pop()
        for key, each in _items(held):
            is_open = isinstance(each, tuple) or is_container(each)
            if is_open and id(each) not in seen:
                seen.add(id(each))
                path = f"{name}[{key!r}]" if isinstance(key, str | int) else name
                pending.append((path, each))
                if not isinstance(each, tuple):
                    yield path, each


def _items(held: Any) -> list[tuple[object, object]]:
    if isinstance(held, dict):
        return list(dict.copy(held).items())
    return list(enumerate(list(held)))


class DictState:
    """The entries of a dict, and their order.

    Of the globals of a module only those that people name count: a compiler keeps its own there.

    Attributes:
        held: The dict.
        before: A copy of it.
    """

    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held
        self.before = dict.copy(held)  # in one step, so that another thread cannot come between
        self._keys = keys_of(held)
        self._is_of_module = dict.__contains__(held, "__builtins__")

    def all_keys(self) -> list[Any]:
        """Return the keys of then and of now."""
        keys = dict.fromkeys([*self.before, *dict.copy(self.held)])
        if self._is_of_module:
            return [key for key in keys if not str(key).startswith("__")]
        return list(keys)

    def has_other_weights(self) -> bool:
        """Whether there are the same keys, and all that changed are tensors and modules."""
        now = dict.copy(self.held)
        return now.keys() == self.before.keys() and _are_other_weights(
            list(self.before.values()), [now[key] for key in self.before]
        )

    def is_rearranged(self) -> bool:
        """Whether the same keys are there in another order, or as other objects: `True` for `1`."""
        now = keys_of(self.held)
        if self._is_of_module or len(now) != len(self._keys) or all(map(is_, now, self._keys)):
            return False
        if any(key not in self.before for key in now):
            return False
        return not same_key(now, self._keys)

    def put_back(self) -> None:
        """Make the dict hold what it held, in the same order."""
        put_back_entries(self.held, self.before, self.all_keys())
        now = keys_of(self.held)
        if self._is_of_module or (len(now) == len(self._keys) and all(map(is_, now, self._keys))):
            return
        base: Any = OrderedDict if isinstance(self.held, OrderedDict) else dict
        for key in self._keys:
            base.__setitem__(self.held, key, base.pop(self.held, key))


def put_back_entries(held: dict[Any, Any], before: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Make the entries of a dict at `keys` what they were."""
    base: Any = OrderedDict if isinstance(held, OrderedDict) else dict
    for key in keys:
        if key not in before:
            base.pop(held, key, None)
        elif dict.get(held, key, ABSENT) is not before[key]:
            base.__setitem__(held, key, before[key])


class SeriesState:
    """The items of a list, a deque or a set, and their order.

    Attributes:
        held: The list, deque or set.
        before: Its items.
    """

    def __init__(self, held: Any) -> None:
        self.held = held
        self.before = list(_base(held).__iter__(held))
        self._finger = _finger(held).value if isinstance(held, set) and _FINGER else 0

    def now(self) -> list[Any]:
        """Return the present items."""
        return list(_base(self.held).__iter__(self.held))

    def has_other_weights(self) -> bool:
        """Whether it is as long, and all that changed are tensors and modules."""
        return not isinstance(self.held, set) and _are_other_weights(self.before, self.now())

    def put_back(self) -> None:
        """Make it hold what it held, in the same order."""
        base, now = _base(self.held), self.now()
        if len(now) == len(self.before) and all(map(is_, now, self.before)):
            pass
        elif base is set and _contains(now, self.before):  # the others stay where they lie
            kept = set(map(id, self.before))
            for item in now:
                if id(item) not in kept:
                    base.discard(self.held, item)
        else:
            base.clear(self.held)
            (base.update if base is set else base.extend)(self.held, self.before)
        if base is set and _FINGER:
            _finger(self.held).value = self._finger  # else the next `pop` takes another item


def _are_other_weights(before: list[Any], now: list[Any]) -> bool:
    pairs = zip(before, now, strict=False)
    changed = [each for then, at in pairs if then is not at for each in (then, at)]
    weights = (Tensor, nn.Module)
    return (
        len(before) == len(now)
        and bool(changed)
        and all(isinstance(each, weights) for each in changed)
    )


def _base(held: Any) -> Any:
    return next(kind for kind in (list, set, deque) if isinstance(held, kind))


def _contains(now: list[Any], before: list[Any]) -> bool:
    return set(map(id, before)) <= set(map(id, now))


def _finger(held: set[Any]) -> ctypes.c_ssize_t:
    return ctypes.c_ssize_t.from_address(id(held) + _FINGER)


def _is_finger_there() -> bool:
    """Try it: no header promises where it is."""
    if set.__basicsize__ < _FINGER + _WORD:
        return False
    tried = set(range(7))
    found = [_finger(tried).value]
    tried.pop()
    tried.pop()
    found.append(_finger(tried).value)
    if found != [0, 2]:
        return False
    _finger(tried).value = 5
    return tried.pop() == 5 and _finger(tried).value == 6


if not _is_finger_there():  # pragma: no cover - of another Python
    _FINGER = 0

State = DictState | SeriesState


def state_of_container(held: Any) -> State:
    """Return what a container holds now."""
    return DictState(held) if isinstance(held, dict) else SeriesState(held)
