"""Python side effects of a run: what it assigned, appended or drew outside torch.

A replay runs kernels, not Python. A forward that stores its activation in `self.last`, counts its
calls, appends to a list or draws from `random` would stop doing so, in silence. `Effects` compares
the state before and after one run, says what changed and can put it back.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from ostinato.class_name import class_name
from ostinato.graphs.cached import CacheState
from ostinato.graphs.changing_lines import line_changing
from ostinato.graphs.container_state import (
    DictState,
    SeriesState,
    nested,
    put_back_entries,
    state_of_container,
)
from ostinato.graphs.contents import BUFFERS, Contents
from ostinato.graphs.leaf_grads import GradState
from ostinato.graphs.places import ABSENT, LARGEST_CONTAINER, Place, same_plain
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
        holders = (*found.holders, *((name, vars(tensor)) for name, tensor in given.items()))
        self._dicts = [(name, held, dict.copy(held)) for name, held in holders]
        # But any code may hand a container to what changes it: `insort(log, x)`, `log += [x]`.
        self._containers = [
            (name, state_of_container(held)) for name, held in (*found.containers, *_further(found))
        ]
        self._grads = GradState((*found.tensors(), *given.values()))
        self._stores_entries = ENTRIES in found.stores
        self._caches = [CacheState(cached) for cached in found.caches]
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
                f"it may take an item from {_the(held, name)}, and nothing puts that back"
                for name, held in found.iterators
            ),
            *(
                f"it uses {_the(held, name)}, which no replay would do"
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
        for name, state in self._containers:
            if self._is_another_threads(state):
                continue
            if isinstance(state, DictState):
                yield from self._other_entries(name, state)
            elif not _alike(state.before, state.now()):
                kind = type(state.held).__name__
                text = f"it changes the {kind} {name}: {_lengths(state)}"
                yield Effect(name, text, line_changing(self._reach.functions, name))
        for name, buffer, _, then in self._buffers:
            if Contents(buffer).now != then:
                yield Effect(name, f"it writes into the {type(buffer).__name__} {name}")

        for _ in self._grads.changed():
            yield Effect("grad", "it gives a tensor another gradient, or takes it away")
            return

    def _is_another_threads(self, state: DictState | SeriesState) -> bool:
        """Whether weights were exchanged, by none of the code that runs here."""
        return not self._stores_entries and state.has_other_weights()

    def _other_entries(self, name: str, state: DictState) -> Iterator[Effect]:
        for key in state.all_keys():
            now = dict.get(state.held, key, ABSENT)
            if not _alike(state.before.get(key, ABSENT), now):
                shown = class_name(key) if isinstance(key, Tensor) else key
                found = self._effect(f"{name}.{shown}", str(shown), now)
                where = found.where or line_changing(self._reach.functions, name)
                yield replace(found, where=where)
        if state.is_rearranged():
            text = f"it changes the order or the kind of the keys of {name}"
            yield Effect(name, text, line_changing(self._reach.functions, name))

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
            put_back_entries(held, before, self._keys(before, held))
        for _, state in self._containers:
            if not self._is_another_threads(state):
                state.put_back()
        self._grads.put_back()
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
        for _, buffer, contents, then in self._buffers:
            if Contents(buffer).now != then:
                buffer[... if isinstance(buffer, np.ndarray) else slice(None)] = contents
        self._put_back_draws()

    def undo_cached(self) -> None:
        """Have functions that remember their answers forget those of the run."""
        for cache in self._caches:
            cache.put_back()

    def _put_back_draws(self) -> None:
        # Only where something was drawn: another thread may be drawing, too.
        if random.getstate() != self._random:
            random.setstate(self._random)
        if not same_state(self._numpy, np.random.get_state()):
            np.random.set_state(self._numpy)
        for held, state in self._randoms:
            if not same_state(state, state_of(held)):
                set_state(held, state)


def _lengths(state: SeriesState) -> str:
    then, now = len(state.before), len(state.now())
    if then == now:
        return f"another entry among its {now}"
    return f"from {then} entries to {now}"


_BY_TEXT = frozenset({"exec", "eval", "globals", "vars", "f_globals", "__globals__", "modules"})


def _further(found: Reach) -> Iterator[tuple[str, Any]]:
    """Yield the containers that the walk named no path to.

    Those within a large one, and all globals where the code may find them by a text.
    """
    known = {id(held) for _, held in found.containers}
    roots = [each for each in found.containers if len(each[1]) > LARGEST_CONTAINER]
    if found.names & _BY_TEXT:
        spaces = {id(each.__globals__): each.__globals__ for each in found.functions}
        roots += [("globals()", names) for names in spaces.values()]
        yield from (each for each in roots if id(each[1]) not in known)
    yield from (each for each in nested(roots) if id(each[1]) not in known)


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


def _the(held: object, name: str) -> str:
    """Say what is held, and where if it is known: what was given to the run has no name."""
    return f"the {type(held).__name__} {name}".rstrip()
