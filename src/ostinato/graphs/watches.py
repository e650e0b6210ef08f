"""The watches of one runner: over its callable, and over the objects that calls give it.

Asked on every call, before the signature is looked up. A change makes every recording of the runner
go: which of them read what was replaced is not known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ostinato.graphs.fitting import objects_in
from ostinato.graphs.given_classes import classes_in
from ostinato.graphs.graph import Graph
from ostinato.graphs.tree import Structure
from ostinato.graphs.watch import Change, Watch

_MOST_WATCHES = 32


class Owner(Protocol):
    """Whose recordings a change makes go."""

    def lose(self, change: Change) -> list[Graph]:
        """Take every recording out of use. Called under a lock, so it must not wait."""
        ...

    def tell(self, change: Change, gone: list[Graph]) -> None:
        """Release them and give account. Called without a lock."""
        ...


class Watches:
    """Finds the watch of a call, and has its owner react to what changed.

    Args:
        fn: The callable.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._watches: dict[tuple[int, ...], Watch] = {}
        self._lock = threading.Lock()

    # The owner is passed in, not kept: a cycle would keep device memory until the collector runs.

    def over(self, leaves: Sequence[object], structure: Structure, owner: Owner) -> Watch:
        """Return the watch over the callable, and objects and classes of a call, seen to."""
        objects = (*objects_in(leaves), *classes_in(leaves, structure))
        watch = self._watches.get(tuple(map(id, objects)) if objects else ())
        if watch is None:
            watch = self._begin(objects)
        if watch.changed() is not None:
            self._react(watch, owner)
        return watch

    def _begin(self, objects: tuple[object, ...]) -> Watch:
        key = tuple(map(id, objects))
        watch = Watch(self._fn, *objects)  # holds the objects, so that their ids stay theirs
        with self._lock:
            if len(self._watches) >= _MOST_WATCHES:
                self._watches.pop(next(iter(self._watches)))
            return self._watches.setdefault(key, watch)

    def _react(self, watch: Watch, owner: Owner) -> None:
        with self._lock:
            change = watch.changed()
            if change is None:  # another thread was first
                return
            gone = owner.lose(change)
            for each in (watch, *self._watches.values()):
                each.look_again()
        owner.tell(change, gone)

    def clear(self) -> None:
        """Let go of all objects."""
        with self._lock:
            self._watches.clear()
