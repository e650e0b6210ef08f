"""The trail of a walk: what was met, what is still to be opened, what a watch is to compare.

`reach.py` walks along it and says what is opened how; `reach_objects.py` and `reach_code.py` open
what holds values and what holds code, and lay down here what they find inside.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ostinato.class_name import class_name, own_name
from ostinato.graphs.contents import BUFFERS, UNORDERED
from ostinato.graphs.libraries import is_library
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
        library_modules: Those of libraries: the code may assign to them.
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
        self.library_modules: list[types.ModuleType] = []
        self.made: set[type] = set()
        self.changing: list[tuple[str, Any]] = []
        self.key_of: dict[int, str] = {}
        self.parts: set[str] = set()
        self._seen: set[int] = set()
        self._keep: list[object] = []  # ids stay valid while the walk lasts
        self._methods: set[tuple[type, str]] = set()
        self._places: set[tuple[int, str]] = set()

    def add(self, value: object, name: str) -> None:
        """Have `value` opened; whoever holds a class may make an object of it."""
        try:
            if isinstance(value, type):
                self.made.update(value.__mro__)
                self.visit(type(value), class_name(value))
            self.visit(value, name)
        except Exception as error:  # noqa: BLE001 - of a `__class__` that is a property
            self.give_up(value, name, error)

    def give_up(self, value: object, name: str, error: Exception) -> None:
        """Note that a user's own method raised when `value` was looked into."""
        what = f"the {class_name(value)} {name}".rstrip()
        told = f"{what}, which raises {class_name(error)} when it is looked into"
        self.found.unreadable.append((name, told))

    @contextmanager
    def trying(self, value: object, name: str) -> Iterator[None]:
        """Give `value` up where one of its methods raises in the block: `__len__`, a property."""
        found = self.found
        lists: tuple[list[Any], ...] = (
            found.places, found.sizes, found.holders, found.containers, found.stored, self.plain
        )  # fmt: skip
        lengths = [len(each) for each in lists]
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user's, of whatever type
            for each, length in zip(lists, lengths, strict=True):
                del each[length:]  # what was half opened would raise at every call
            self.give_up(value, name, error)

    def visit(self, value: object, name: str) -> None:
        """Have `value` opened, once; of a plain one its class, if that may have methods."""
        if isinstance(value, PLAIN):
            self._visit_class(type(value))
        elif not self.was_seen(value):
            self._seen.add(id(value))
            self._keep.append(value)
            self.ahead.append((value, name))

    def _visit_class(self, kind: type) -> None:
        """Have the class of a member of an `Enum`, or of a kind of number or string, opened."""
        if kind.__module__ != "builtins" and not is_library(kind.__module__):
            self.visit(kind, own_name(kind))

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
        try:
            if isinstance(held, PLAIN):
                self.visit(held, name)
                self.plain.append((own, Place(container, key, held, name)))
                return
            if isinstance(held, UNORDERED + BUFFERS):
                self.key_of.setdefault(id(held), key)
        except Exception as error:  # noqa: BLE001 - as in `add`
            self.give_up(held, name, error)
            return
        self.place(container, key, held, name)

    def method(self, kind: type, name: str) -> None:
        """Watch what a class may be given anew: a method of any sort, a property."""
        if (kind, name) not in self._methods:
            self._methods.add((kind, name))
            entries = entries_of(kind)
            if name in entries and not isinstance(entries[name], PLAIN):
                place = Place(entries, name, entries[name], f"{own_name(kind)}.{name}")
                self.found.places.append(place)

    def identity(self, container: Any, key: Any, value: object, name: str) -> None:
        """Watch which object lies in a place, once, and open nothing."""
        where = (id(container), key)
        if where not in self._places:
            self._places.add(where)
            self.found.places.append(Place(container, key, value, name))

    def place_once(self, place: Place) -> None:
        """Watch a place that several functions go by, and have what it holds opened."""
        self.identity(place.container, place.key, place.value, place.name)
        self.add(place.value, place.name)
