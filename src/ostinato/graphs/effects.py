"""Python side effects of a run: what it assigned, appended or drew outside torch.

A replay runs kernels, not Python. A forward that stores its activation in `self.last`, counts its
calls, appends to a list or draws from `random` would stop doing so, in silence. `Effects` compares
the state before and after one run, says what changed and can put it back.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from ostinato.graphs.contents import BUFFERS, Contents
from ostinato.graphs.places import ABSENT, Place, keys_of, same_key, same_plain
from ostinato.graphs.random_states import same_state, set_state, state_of
from ostinato.graphs.reach import Reach
from ostinato.graphs.reading import ANY_NAME, ENTRIES, line_storing

_NONE_GIVEN: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a run changed.

    Attributes:
        name: What changed: "block.last", "calls (a global)", "Python's random state".
        text: A sentence for people.
        where: The line that assigns it, if one can be found.
    """

    name: str
    text: str
    where: str | None = None


class Effects:
    """The Python state that a callable reaches, as it was before a run.

    Args:
        found: What it reaches.
        given: Tensors that the run is given, by path: attributes may be set on them.
    """

    def __init__(self, found: Reach, given: Mapping[str, Tensor] = _NONE_GIVEN) -> None:
        self._reach = found
        # Another thread may replace a weight meanwhile: that is not this run's doing, and undoing
        # it would lose it. So only what the code that runs may assign is looked at.
        self._any_name = ANY_NAME in found.stores
        self._any_entry = ENTRIES in found.stores
        holders = (*found.holders, *((name, vars(tensor)) for name, tensor in given.items()))
        self._dicts = [(name, held, dict.copy(held)) for name, held in holders]
        self._entries = [
            (name, held, dict.copy(held), keys_of(held))
            for name, held in found.containers
            if isinstance(held, dict) and self._any_entry
        ]
        self._series = [
            (name, held, list(held))
            for name, held in found.containers
            if not isinstance(held, dict) and self._any_entry
        ]
        # Dicts are compared as a whole; the rest are closure cells, slots and globals.
        self._places = [
            (place, place.now())
            for place in (*found.places, *found.stored)
            if not isinstance(place.container, list | type | Contents)
            and not _is_whole(place)
            and (self._may_assign(place.key) or self._may_assign(_variable(place)))
        ]
        self._classes = [(kind, _own_values(kind)) for kind in found.classes]
        self._buffers = [
            (name, each.held, _copy_of(each.held), each.now)
            for name, each in found.contents
            if isinstance(each.held, BUFFERS)
        ]
        self._random = random.getstate()
        self._numpy = np.random.get_state()
        self._randoms = [(held, state_of(held)) for held in found.randoms]

    @staticmethod
    def foreseen(found: Reach) -> list[Effect]:
        """Return what no run may be made for, because nothing could put it back."""
        texts = [
            *(
                f"it may take an item from the {type(held).__name__} {name}, "
                "and nothing puts that back"
                for name, held in found.iterators
            ),
            *(
                f"it uses the {type(held).__name__} {name}, which no replay would do"
                for name, held in found.outlets
            ),
            *(
                f"it reads the {what}: use a tensor, or make an array read-only"
                for _, what in found.unwatched
            ),
            *(f"it may read {what}" for _, what in found.unreadable),
        ]
        return [Effect("", text) for text in texts]

    def _may_assign(self, name: Any) -> bool:
        return self._any_name or name in self._reach.stores

    def found(self) -> list[Effect]:
        """Compare with the present state."""
        return [*self._assigned(), *self._changed(), *self._drawn()]

    def _assigned(self) -> Iterator[Effect]:
        for name, held, before in self._dicts:
            for key in self._keys(before, held):
                now = dict.get(held, key, ABSENT)
                if not _alike(before.get(key, ABSENT), now):
                    yield self._effect(f"{name}.{key}" if name else str(key), str(key), now)
        for place, then in self._places:
            if not _alike(then, place.now()):
                yield self._effect(place.name, _variable(place), place.now())
        for kind, values in self._classes:
            now_held = _own_values(kind)
            for key in self._keys(values, now_held):
                if not _alike(values.get(key, ABSENT), now_held.get(key, ABSENT)):
                    now = now_held.get(key, ABSENT)
                    yield self._effect(f"{kind.__name__}.{key}", key, now)

    def _keys(self, before: dict[Any, Any], held: dict[Any, Any]) -> list[Any]:
        return [key for key in _keys(before, held) if self._may_assign(key)]

    def _changed(self) -> Iterator[Effect]:
        for name, held, before, keys in self._entries:
            for key in _keys(before, held):
                now = dict.get(held, key, ABSENT)
                if not _alike(before.get(key, ABSENT), now):
                    yield self._effect(f"{name}.{key}", str(key), now)
            if held.keys() == before.keys() and not same_key(keys, keys_of(held)):
                yield Effect(name, f"it changes the order or the kind of the keys of {name}")
        for name, series, kept in self._series:
            if not _alike(kept, list(series)):
                kind = type(series).__name__
                text = f"it changes the {kind} {name}: {_lengths(len(kept), len(series))}"
                yield Effect(name, text)
        for name, buffer, _, then in self._buffers:
            if Contents(buffer).now != then:
                yield Effect(name, f"it writes into the {type(buffer).__name__} {name}")

    def _drawn(self) -> Iterator[Effect]:
        if random.getstate() != self._random:
            yield Effect("random", "it draws from Python's random module")
        if not same_state(self._numpy, np.random.get_state()):
            yield Effect("numpy.random", "it draws from numpy's global random state")
        for held, state in self._randoms:
            if not same_state(state, state_of(held)):
                yield Effect("random", f"it draws from a {type(held).__name__} of its own")

    def _effect(self, name: str, variable: str, now: object) -> Effect:
        what = "a tensor" if isinstance(now, Tensor) else f"a {type(now).__name__}"
        text = f"it deletes {name}" if now is ABSENT else f"it assigns {what} to {name}"
        return Effect(name, text, line_storing(self._reach.functions, variable))

    def undo(self) -> None:
        """Put everything back as it was before the run."""
        for _, held, before in self._dicts:
            _put_back(held, before, self._keys(before, held))
        for _, held, before, keys in self._entries:
            _put_back(held, before, _keys(before, held))
            if keys != keys_of(held):
                _put_in_order(held, keys)
        for place, then in self._places:
            if place.now() is not then:
                _set(place, then)
        for kind, values in self._classes:
            now_held = _own_values(kind)
            for key in self._keys(values, now_held):
                if key not in values:
                    delattr(kind, key)
                elif now_held.get(key, ABSENT) is not values[key]:
                    setattr(kind, key, values[key])
        for _, series, kept in self._series:
            if not _same_objects(list(series), kept):
                base: Any = next(kind for kind in (list, set, deque) if isinstance(series, kind))
                base.clear(series)
                (base.update if base is set else base.extend)(series, kept)
        for _, buffer, contents, then in self._buffers:
            if Contents(buffer).now != then:
                buffer[... if isinstance(buffer, np.ndarray) else slice(None)] = contents
        self._put_back_draws()

    def _put_back_draws(self) -> None:
        # Only where something was drawn: another thread may be drawing, too.
        if random.getstate() != self._random:
            random.setstate(self._random)
        if not same_state(self._numpy, np.random.get_state()):
            np.random.set_state(self._numpy)
        for held, state in self._randoms:
            if not same_state(state, state_of(held)):
                set_state(held, state)


def _lengths(then: int, now: int) -> str:
    if then == now:
        return f"another entry among its {now}"
    return f"from {then} entries to {now}"


def _variable(place: Place) -> str:
    return place.name.partition(" ")[0]


def _is_whole(place: Place) -> bool:
    """Whether its container is compared as a whole: any dict but the globals of a module."""
    held = place.container
    return isinstance(held, dict) and not dict.__contains__(held, "__builtins__")


# Through the base classes: a subclass may translate, or refuse, what it is asked.


def _keys(before: dict[Any, Any], held: dict[Any, Any]) -> list[Any]:
    return list(dict.fromkeys([*before, *dict.keys(held)]))


def _copy_of(buffer: Any) -> Any:
    return np.array(buffer) if isinstance(buffer, np.ndarray) else copy.copy(buffer)


def _own_values(kind: type) -> dict[str, Any]:
    return {
        key: held
        for key, held in vars(kind).items()
        if not key.startswith("_abc_") and key not in _OF_CLASSES
    }


_OF_CLASSES = frozenset({"__dict__", "__weakref__", "__doc__", "__annotations__"})


def _put_back(held: dict[Any, Any], before: dict[Any, Any], keys: list[Any]) -> None:
    # Key by key, and through the base class: a subclass may translate what it is given.
    base: Any = OrderedDict if isinstance(held, OrderedDict) else dict
    for key in keys:
        if key not in before:
            base.pop(held, key, None)
        elif dict.get(held, key, ABSENT) is not before[key]:
            base.__setitem__(held, key, before[key])


def _put_in_order(held: dict[Any, Any], keys: tuple[Any, ...]) -> None:
    base: Any = OrderedDict if isinstance(held, OrderedDict) else dict
    for key in keys:
        base.__setitem__(held, key, base.pop(held, key))


def _set(place: Place, value: object) -> None:
    container, key = place.container, place.key
    if isinstance(container, dict):
        if value is ABSENT:
            container.pop(key, None)
        else:
            container[key] = value
    elif value is ABSENT:
        delattr(container, key)
    else:
        setattr(container, key, value)


def _alike(then: object, now: object) -> bool:
    """Whether a rebinding is none: the same object, or an equal plain value."""
    if then is now or same_plain(then, now):
        return True
    if isinstance(then, list | tuple) and isinstance(now, list | tuple):
        return len(then) == len(now) and all(map(_alike, then, now))
    if isinstance(then, dict) and isinstance(now, dict):
        return then.keys() == now.keys() and all(_alike(v, now[k]) for k, v in then.items())
    return False


def _same_objects(now: list[Any], then: list[Any]) -> bool:
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))
