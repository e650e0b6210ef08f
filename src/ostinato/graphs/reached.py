"""What a walk from a callable found; see `reach.py`, which walks."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.graphs.computed_names import asks_any_name, names_asked_by
from ostinato.graphs.contents import Contents
from ostinato.graphs.places import Place, Size
from ostinato.graphs.reading import ENTRIES, changes_container

CALLED_BY_PYTHON = ("forward", "__call__", "__iter__", "__next__")

DESCRIPTORS = (types.FunctionType, property, staticmethod, classmethod, types.MemberDescriptorType,
               functools.cached_property, types.GetSetDescriptorType)  # fmt: skip
"""Members of a class that count only where the code names them."""

# Run where code that holds a class makes an object of it.
_CONSTRUCTORS = frozenset({"__new__", "__init__", "__post_init__", "__class_getitem__"})

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "expandvars"})

# Run when an object is copied, shown or changed: no value of a result comes from there.
_BESIDE_A_RUN = _CONSTRUCTORS | frozenset(
    f"__{name}__"
    for name in (
        *("del", "init_subclass", "set_name"),
        *("setattr", "delattr", "setitem", "delitem", "repr", "str", "dir", "sizeof"),
        *("copy", "deepcopy", "reduce", "reduce_ex", "getstate", "setstate", "getnewargs"),
    )
)


def is_called_by_python(name: str, member: object, is_made: bool) -> bool:
    """Whether `member` of a user's class runs though nobody names it: `len(x)`, `a * b`.

    Where a run makes objects of the class (`is_made`), its constructors do.
    What a decorator such as `dataclass` generated reads every field, and says nothing of its own.
    """
    if is_made and name in _CONSTRUCTORS:
        return True
    if not (name.startswith("__") and name.endswith("__")) or name in _BESIDE_A_RUN:
        return False
    return isinstance(member, types.FunctionType) and member.__code__.co_filename != "<string>"


@dataclass(slots=True)
class Reach:
    """Everything found.

    Attributes:
        modules: Every `nn.Module`, with its path, by id.
        places: What to compare before a replay.
        sizes: What to measure before a replay.
        holders: Dicts of attributes, of modules, objects and functions, with their path.
        containers: Lists, dicts, sets and deques, with their path.
        classes: The user's classes whose methods run.
        stored: Globals that the code assigns, whether or not it reads them.
        functions: The user's functions that may run.
        randoms: Python's and numpy's random generators.
        generators: torch's random generators.
        iterators: Iterators that the code may advance, with their path: they cannot be put back.
        outlets: Queues, files and the like that the code may use, with their path: nor can they.
        unwatched: Arrays that the code may read, with their path, and why they cannot be compared.
        unreadable: Objects that raise when they are looked into, with their path, and what is said.
        contents: Arrays, sets and deques whose contents are compared, with their path.
        caches: Functions that remember their answers.
        called: The names that libraries' functions and classes have, whatever the code calls them.
        names: Every attribute name that may be read.
        reads_any_name: Whether an attribute of any name may be read besides.
        stores: Every name that may be assigned; see `names_stored`.
    """

    modules: dict[int, tuple[str, nn.Module]] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    holders: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    containers: list[tuple[str, Any]] = field(default_factory=list)
    classes: list[type] = field(default_factory=list)
    stored: list[Place] = field(default_factory=list)
    functions: list[types.FunctionType] = field(default_factory=list)
    randoms: list[Any] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)
    iterators: list[tuple[str, object]] = field(default_factory=list)
    outlets: list[tuple[str, object]] = field(default_factory=list)
    unwatched: list[tuple[str, str]] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    contents: list[tuple[str, Contents]] = field(default_factory=list)
    caches: list[functools._lru_cache_wrapper[Any]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=lambda: set(CALLED_BY_PYTHON))
    reads_any_name: bool = False
    stores: set[str] = field(default_factory=set)

    def may_read(self, name: str) -> bool:
        """Whether the code may read an attribute of this name."""
        return self.reads_any_name or name in self.names

    def may_name(self, path: str) -> bool:
        """Whether it names what lies at `path`: variables it does, attributes it may not."""
        _, dot, attribute = path.partition("[")[0].rpartition(".")
        return not dot or self.may_read(attribute)

    def note(self, value: object) -> None:
        """Add what a callable of Python's own reads and changes, as an `attrgetter` does."""
        self.names |= names_asked_by(value)
        self.reads_any_name |= asks_any_name(value)
        self.called.add(str(getattr(value, "__name__", "")))
        if changes_container(value):
            self.stores.add(ENTRIES)
        if isinstance(value, functools._lru_cache_wrapper):
            self.caches.append(value)

    def read_positions(self) -> None:
        """Add the names that patterns such as `case Model(s)` go by, if the code has any."""
        if "__match_args__" in self.names:
            self.names.update(*map(_match_args, self.classes))

    def read_environment(self) -> None:
        """Have all variables of the environment compared, if the code names it."""
        if not self.names & _ENVIRONMENT:
            return
        held: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
        self.sizes.append(Size(held, "os.environ"))
        for key, value in list(held.items()):
            self.places.append(Place(held, key, value, f"os.environ[{key!r}]"))

    def tensors(self) -> Iterator[Tensor]:
        """Yield each tensor held in a place; an object that only says that it is one is none."""
        for place in self.places:
            if issubclass(type(place.value), Tensor):
                yield place.value


def _match_args(kind: type) -> tuple[str, ...]:
    """Names that a pattern asks for by place; a class may hold anything under that name."""
    found = getattr(kind, "__match_args__", ())
    return (
        tuple(each for each in found if isinstance(each, str)) if isinstance(found, tuple) else ()
    )
