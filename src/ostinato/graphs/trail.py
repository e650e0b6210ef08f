"""The trail of a walk: what was met, what is still to be opened, what a watch is to compare.

`reach.py` walks along it and says what is opened how; `reach_objects.py` and `reach_code.py` open
what holds values and what holds code, and lay down here what they find inside.
"""

from __future__ import annotations

import types
from collections import deque
from typing import Any

from ostinato.class_name import class_name, own_name
from ostinato.graphs.contents import BUFFERS, UNORDERED
from ostinato.graphs.places import PLAIN, Place, entries_of
from ostinato.graphs.reached import Reach


class Trail:
    """Where a walk has been.

    Attributes:
        found: What is to be watched.
        ahead: What is still to be opened, with its path.
        plain: Numbers and strings that attributes hold, and the names that their owner reads.
        read_by: The names that a library's class reads, by class.
        python_modules: The user's, whose parts are opened as the code names them.
        made: Classes that the code holds, not only objects of them.
        changing: What changes in place, with its path.
        key_of: The attribute that holds what changes in place, by id.
        parts: Of which names are made that do not stand in the code.
    """

    def __init__(self) -> None:
        self.found = Reach()
        self.ahead: deque[tuple[object, str]] = deque()
        self.plain: list[tuple[frozenset[str], Place]] = []
        self.read_by: dict[type, frozenset[str]] = {}
        self.python_modules: list[types.ModuleType] = []
        self.made: set[type] = set()
        self.changing: list[tuple[str, Any]] = []
        self.key_of: dict[int, str] = {}
        self.parts: set[str] = set()
        self._seen: set[int] = set()
        self._keep: list[object] = []  # ids stay valid while the walk lasts
        self._methods: set[tuple[type, str]] = set()
        self._patchable: set[tuple[int, str]] = set()

    def add(self, value: object, name: str) -> None:
        """Have `value` opened; whoever holds a class may make an object of it."""
        if isinstance(value, type):
            self.made.update(value.__mro__)
            self.visit(type(value), class_name(value))
        self.visit(value, name)

    def visit(self, value: object, name: str) -> None:
        """Have `value` opened, once."""
        if not self.was_seen(value) and not isinstance(value, PLAIN):
            self._seen.add(id(value))
            self._keep.append(value)
            self.ahead.append((value, name))

    def was_seen(self, value: object) -> bool:
        """Whether `value` was met before."""
        return id(value) in self._seen

    def place(self, container: Any, key: Any, value: object, name: str) -> None:
        """Watch a place, and have what it holds opened."""
        self.found.places.append(Place(container, key, value, name))
        self.add(value, name)

    def attribute(
        self,
        container: Any,
        key: str,
        held: object,
        name: str,
        own: frozenset[str] = frozenset(),
    ) -> None:
        """Watch an attribute: a plain value only if some code reads one of its name.

        Args:
            own: Names that the code of its owner reads, whatever other code does.
        """
        if isinstance(held, PLAIN):
            self.plain.append((own, Place(container, key, held, name)))
        else:
            if isinstance(held, UNORDERED + BUFFERS):
                self.key_of.setdefault(id(held), key)
            self.place(container, key, held, name)

    def method(self, kind: type, name: str) -> None:
        """Watch what a class may be given anew: a method of any sort, a property."""
        if (kind, name) not in self._methods:
            self._methods.add((kind, name))
            entries = entries_of(kind)
            if name in entries and not isinstance(entries[name], PLAIN):
                place = Place(entries, name, entries[name], f"{own_name(kind)}.{name}")
                self.found.places.append(place)

    def patchable(self, place: Place) -> None:
        """Watch a function of a library that somebody may exchange, once."""
        where = (id(place.container), place.key)
        if where not in self._patchable:
            self._patchable.add(where)
            self.place(place.container, place.key, place.value, place.name)
