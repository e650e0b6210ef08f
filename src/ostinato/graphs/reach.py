"""What a callable can reach: the modules, tensors and Python values that its runs may read.

A recording freezes all of it. Parameters are found through modules, wherever the callable holds
them: itself, `self` of a bound method, closure cells, globals it names, defaults, partials,
containers and plain objects. The walk runs when something changed, never on a replay.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import UserDict, UserList, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ostinato.graphs.places import ABSENT, PLAIN, Place, Size
from ostinato.graphs.reading import (
    ANY_NAME,
    ENTRIES,
    globals_stored,
    names_of_class,
    names_read,
    names_stored,
)

_LARGEST_CONTAINER = 4096
_LIBRARIES = (sys.stdlib_module_names | {"torch", "numpy", "transformers", "ostinato"}) - {"test"}
# Of the standard library, what people keep their own values in.
_HOLDERS = (types.SimpleNamespace, UserDict, UserList)
_CALLED_BY_PYTHON = ("forward", "__call__", "__iter__", "__next__")
_RANDOMS = (random.Random, np.random.Generator, np.random.RandomState)


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
        names: Every attribute name that may be read.
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
    names: set[str] = field(default_factory=lambda: set(_CALLED_BY_PYTHON))
    stores: set[str] = field(default_factory=set)

    def tensors(self) -> Iterator[Tensor]:
        """Yield each tensor held in a place."""
        for place in self.places:
            if isinstance(place.value, Tensor):
                yield place.value


def reach(*roots: object) -> Reach:
    """Walk from `roots` and return what their runs may read."""
    walk = _Walk()
    for root in roots:
        walk.add(root, "")
    return walk.run()


class _Walk:
    def __init__(self) -> None:
        self.found = Reach()
        self._seen: set[int] = set()
        self._keep: list[object] = []  # ids stay valid while the walk lasts
        self._queue: deque[tuple[object, str]] = deque()
        self._plain: list[tuple[frozenset[str], Place]] = []
        self._read_by: dict[type, frozenset[str]] = {}
        self._python_modules: list[types.ModuleType] = []
        self._methods: set[tuple[type, str]] = set()

    def add(self, value: object, name: str) -> None:
        if id(value) not in self._seen and not isinstance(value, PLAIN):
            self._seen.add(id(value))
            self._keep.append(value)
            self._queue.append((value, name))

    def run(self) -> Reach:
        for hooks in (
            torch_module._global_forward_hooks,
            torch_module._global_forward_pre_hooks,
        ):
            self.found.sizes.append(Size(hooks, "the hooks of all modules"))
            for number, hook in list(hooks.items()):
                self._place(hooks, number, hook, "the hooks of all modules")
        while self._queue or self._name_more():
            self._open(*self._queue.popleft())
        # Only now is it known which names the user's code reads, of its own objects and of others'.
        read = self.found.names
        self.found.places += [
            place for own, place in self._plain if place.key in read or place.key in own
        ]
        for names in self._read_by.values():
            read |= names
        self.found.iterators = [
            (name, held) for name, held in self.found.iterators if _may_be_named(name, read)
        ]
        return self.found

    def _name_more(self) -> bool:
        """Open the methods, and the parts of Python modules, that the code read so far names."""
        for kind in self.found.classes:
            for name in self.found.names & vars(kind).keys():
                member = vars(kind)[name]
                method = getattr(member, "fget", getattr(member, "__func__", member))
                if isinstance(method, types.FunctionType):
                    self.add(method, kind.__name__)
                    self._method(kind, name)
        for module in self._python_modules:
            for name in self.found.names & vars(module).keys():
                held = vars(module)[name]
                if id(held) not in self._seen and _is_worth_watching(held):
                    self._place(vars(module), name, held, f"{module.__name__}.{name}")
        return bool(self._queue)

    def _method(self, kind: type, name: str) -> None:
        """Watch a method that the class may be given anew. A class method is never the same."""
        if (kind, name) not in self._methods and not isinstance(vars(kind)[name], classmethod):
            self._methods.add((kind, name))
            held = getattr(kind, name, ABSENT)
            self.found.places.append(Place(kind, name, held, f"{kind.__name__}.{name}"))

    def _open(self, value: Any, name: str) -> None:
        if isinstance(value, nn.Module):
            self._module(value, name)
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif isinstance(value, types.MethodType):
            self.add(value.__self__, name)
            self.add(value.__func__, name)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.add(part, name)
        elif isinstance(value, dict | list | tuple | set | frozenset | deque):
            self._container(value, name)
        elif isinstance(value, _RANDOMS):
            self.found.randoms.append(value)
        elif isinstance(value, torch.Generator):
            self.found.generators.append(value)
        elif isinstance(value, Iterator) and not is_users_object(value):
            self.found.iterators.append((name, value))
        elif isinstance(value, types.ModuleType):
            self._python_module(value)
        elif isinstance(value, type):
            self._class(value)
        elif is_users_object(value):
            self._object(value, name)
        else:  # a graphed callable, a cached function
            self.add(getattr(value, "__wrapped__", None), name)

    def _place(self, container: Any, key: Any, value: object, name: str) -> None:
        self.found.places.append(Place(container, key, value, name))
        self.add(value, name)

    def _module(self, module: nn.Module, name: str) -> None:
        self.found.modules[id(module)] = (name, module)
        prefix = f"{name}." if name else ""
        own = {"parameters": module._parameters, "buffers": module._buffers}
        for kind, entries in (*own.items(), ("parts", module._modules)):
            if not isinstance(entries, dict):
                continue  # a scripted module answers from C++
            self.found.holders.append((name, entries))
            told = f"the {kind} of {name or type(module).__name__}"
            self.found.sizes.append(Size(entries, told, is_of_weights=True))
            for key, value in list(entries.items()):
                self._place(entries, key, value, f"{prefix}{key}")
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            self.found.sizes.append(Size(hooks, f"{prefix}hooks"))
            for number, hook in list(hooks.items()):
                self._place(hooks, number, hook, f"{prefix}hooks")
        self._attributes(module, vars(module), prefix)

    def _object(self, value: Any, name: str) -> None:
        if _is_library(type(value).__module__):
            self.found.stores |= {ANY_NAME, ENTRIES}  # its methods are not walked
        prefix = f"{name}." if name else f"{type(value).__name__}."
        if isinstance(attributes := getattr(value, "__dict__", None), dict):
            self._attributes(value, attributes, prefix)
        for slot in _slots(type(value)):
            held = getattr(value, slot, ABSENT)
            self._attribute(value, slot, held, f"{prefix}{slot}", frozenset())

    def _attributes(self, owner: object, attributes: dict[str, Any], prefix: str) -> None:
        """Watch the attributes that some code reads, and tensors and objects in any case."""
        kind = type(owner)
        self.found.holders.append((prefix.removesuffix("."), attributes))
        self.found.sizes.append(Size(attributes, prefix, frozenset(attributes)))
        own = self._names_of(kind)
        for key, held in list(attributes.items()):
            if key not in _MODULE_INTERNALS:
                self._attribute(attributes, key, held, f"{prefix}{key}", own)
        self.add(kind, kind.__name__)

    def _attribute(
        self, container: Any, key: str, held: object, name: str, own: frozenset[str]
    ) -> None:
        if isinstance(held, PLAIN):
            self._plain.append((own, Place(container, key, held, name)))
        else:
            self._place(container, key, held, name)

    def _names_of(self, kind: type) -> frozenset[str]:
        names = self._read_by.get(kind)
        if names is None:
            is_users = not _is_library(kind.__module__)  # then its methods are walked
            names, stored = (frozenset(), frozenset()) if is_users else names_of_class(kind)
            self._read_by[kind] = names
            self.found.stores |= stored
        return names

    def _class(self, kind: type) -> None:
        """Watch what a class gives its objects: its `forward`, and the values it holds."""
        if issubclass(kind, nn.Module) and not kind.__module__.startswith("torch."):
            self.found.places.append(
                Place(kind, "forward", kind.forward, f"{kind.__name__}.forward")
            )
        if _is_library(kind.__module__):
            return
        self.found.classes.append(kind)
        for key, held in list(vars(kind).items()):
            if key.startswith("__") or isinstance(held, _DESCRIPTORS):
                continue
            self._attribute(kind, key, held, f"{kind.__name__}.{key}", frozenset())
        for base in kind.__bases__:
            self.add(base, base.__name__)

    def _container(self, value: Any, name: str) -> None:
        if not isinstance(value, tuple | frozenset):
            self.found.containers.append((name or type(value).__name__, value))
            self.found.sizes.append(Size(value, name or type(value).__name__))
        if len(value) > _LARGEST_CONTAINER:
            return
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, held in list(items):
                self._place(value, key, held, f"{name}[{key!r}]")
        else:
            for held in list(value):
                self.add(held, name)

    def _function(self, function: types.FunctionType, name: str) -> None:
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            held = getattr(cell, "cell_contents", ABSENT)
            if variable == "__class__":
                continue
            self._place(cell, "cell_contents", held, variable)
        if not _is_library(function.__module__):
            self._globals(function)
            self.found.functions.append(function)
            self.found.names |= names_read(code)
            self.found.stores |= names_stored(code)
            self._own_parts(function)
        for held in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.add(held, name)
        self.add(getattr(function, "__wrapped__", None), name)

    def _own_parts(self, function: types.FunctionType) -> None:
        """Watch a function's code, defaults and attributes."""
        path, attributes = function.__name__, function.__dict__
        self.found.holders.append((path, attributes))
        self.found.sizes.append(Size(attributes, f"{path}.", frozenset(attributes)))
        for key, held in list(attributes.items()):
            self._attribute(attributes, key, held, f"{path}.{key}", frozenset())
        for key in ("__code__", "__defaults__", "__kwdefaults__"):
            held = getattr(function, key)
            self.found.places.append(Place(function, key, held, f"{path}.{key}"))

    def _globals(self, function: types.FunctionType) -> None:
        names = function.__globals__
        for variable in sorted(names_read(function.__code__)):
            if variable in names and not variable.startswith("__"):
                held = names[variable]
                if _is_worth_watching(held):
                    self._place(names, variable, held, f"{variable} (a global)")
                else:
                    self.add(held, variable)
        for variable in globals_stored(function.__code__):
            held = names.get(variable, ABSENT)
            self.found.stored.append(Place(names, variable, held, f"{variable} (a global)"))

    def _python_module(self, module: types.ModuleType) -> None:
        if _is_library(module.__name__):
            return
        self._python_modules.append(module)
        for key, held in list(vars(module).items()):
            if isinstance(held, PLAIN) and not key.startswith("__"):
                place = Place(vars(module), key, held, f"{module.__name__}.{key}")
                self._plain.append((frozenset(), place))


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{slot}" if private else slot


def _may_be_named(path: str, read: set[str]) -> bool:
    """Whether the code names what lies at `path`: variables it does, attributes it may not."""
    _, dot, attribute = path.partition("[")[0].rpartition(".")
    return not dot or attribute in read


def _is_worth_watching(value: object) -> bool:
    if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return False
    if isinstance(value, types.FunctionType):
        return not _is_library(value.__module__)
    return True


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def is_users_object(value: object) -> bool:
    """Whether `value` is an object whose attributes a run may read, and no library's own."""
    if isinstance(value, Tensor | torch.Generator | types.BuiltinFunctionType):
        return False
    if not hasattr(value, "__dict__") and not any(_slots(type(value))):
        return False
    # Library objects are walked when they may hold tensors that a run reads, such as a KV cache.
    module = type(value).__module__
    return (
        isinstance(value, _HOLDERS)
        or not _is_library(module)
        or module == "argparse"
        or module.startswith("transformers.cache_utils")
    )


_MODULE_INTERNALS = frozenset(vars(nn.Module())) | {"training"}
_DESCRIPTORS = (types.FunctionType, property, staticmethod, classmethod, types.MemberDescriptorType,
                functools.cached_property, types.GetSetDescriptorType)  # fmt: skip
