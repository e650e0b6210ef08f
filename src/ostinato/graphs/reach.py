"""What a callable can reach: the modules, tensors and Python values that its runs may read.

A recording freezes all of it. Parameters are found through modules, wherever the callable holds
them: itself, `self` of a bound method, closure cells, globals it names, defaults, partials,
containers and plain objects. The walk runs when something changed, never on a replay.
"""

from __future__ import annotations

import functools
import inspect
import random
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ostinato.class_name import class_name, own_name
from ostinato.graphs.asked_about import only_asked_about
from ostinato.graphs.computed_names import (
    composed,
    computes_names,
    parts_of_names,
)
from ostinato.graphs.contents import BUFFERS, UNORDERED, Contents, is_fixed, too_large
from ostinato.graphs.global_names import globals_read, modules_found
from ostinato.graphs.held_by import held_by
from ostinato.graphs.libraries import (
    BOOKKEEPING,
    is_config,
    is_library,
    is_users_object,
    is_worth_watching,
    patchable,
    slots_of,
)
from ostinato.graphs.outlets import OUTLETS, methods_of_outlet
from ostinato.graphs.places import ABSENT, PLAIN, Place, Size, entries_of
from ostinato.graphs.reached import DESCRIPTORS, Reach, is_called_by_python
from ostinato.graphs.reading import (
    ANY_NAME,
    ENTRIES,
    globals_stored,
    names_of_class,
    names_read,
    names_stored,
)

__all__ = ["Reach", "reach"]

_LARGEST_CONTAINER = 4096
_RANDOMS = (random.Random, np.random.Generator, np.random.RandomState)


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
        self._made: set[type] = set()  # classes that the code holds, not only objects of them
        self._methods: set[tuple[type, str]] = set()
        self._patchable: set[tuple[int, str]] = set()
        self._changing: list[tuple[str, Any]] = []
        self._key_of: dict[int, str] = {}  # the attribute that holds what changes in place
        self._parts: set[str] = set()  # of which names are made that do not stand in the code

    def add(self, value: object, name: str) -> None:
        if isinstance(value, type):  # whoever holds a class may make an object of it
            self._made.update(value.__mro__)
            self._visit(type(value), class_name(value))
        self._visit(value, name)

    def _visit(self, value: object, name: str) -> None:
        if id(value) not in self._seen and not isinstance(value, PLAIN):
            self._seen.add(id(value))
            self._keep.append(value)
            self._queue.append((value, name))

    def run(self) -> Reach:
        of_all = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
        for hooks in of_all:
            self._hooks(hooks, "the hooks of all modules")
        while self._queue or self._name_more():
            self._open(*self._queue.popleft())
        # Only now is it known which names the user's code reads, of its own objects and of others'.
        found, read = self.found, self.found.names
        found.places += [
            place for own, place in self._plain if found.may_read(place.key) or place.key in own
        ]
        for names in self._read_by.values():
            read |= names
        found.read_environment()
        found.iterators = [each for each in found.iterators if found.may_name(each[0])]
        found.unwatched = [each for each in found.unwatched if found.may_name(each[0])]
        # Comparing these takes a microsecond, so only those that the code names.
        found.contents = [
            (name, Contents(held))
            for name, held in self._changing
            if found.may_name(name) and found.may_read(self._key_of.get(id(held), "forward"))
        ]
        found.places += [Place(each, "now", each.now, name) for name, each in found.contents]
        found.outlets = [
            (name, held)
            for name, held in found.outlets
            if found.may_name(name) and read & methods_of_outlet(held)
        ]
        return found

    def _name_more(self) -> bool:
        """Open the methods, and the parts of Python modules, that the code read so far names."""
        from_parts = self._composed() if self.found.reads_any_name else frozenset()
        self.found.read_positions()
        for kind in self.found.classes:
            for name, member in list(vars(kind).items()):
                is_named = name in self.found.names or name in from_parts
                if not is_named and not is_called_by_python(name, member, kind in self._made):
                    continue
                if isinstance(member, classmethod):  # it is handed the class
                    self.add(kind, own_name(kind))
                method = getattr(member, "fget", getattr(member, "__func__", member))
                if isinstance(method, types.FunctionType):
                    self.add(method, own_name(kind))
                self._method(kind, name)
        for module in self._python_modules:
            for name in self.found.names & vars(module).keys():
                held = vars(module)[name]
                if not is_worth_watching(held):
                    self.add(held, name)
                elif id(held) not in self._seen:
                    self._place(vars(module), name, held, f"{module.__name__}.{name}")
        return bool(self._queue)

    def _composed(self) -> frozenset[str]:
        """The methods that may be what a computed name names: a string shows a part of theirs."""
        places = (*self.found.places, *(place for _, place in self._plain))
        words = {place.value for place in places if isinstance(place.value, str)}
        names = (name for kind in self.found.classes for name in vars(kind))
        return composed(names, words, self._parts)

    def _method(self, kind: type, name: str) -> None:
        """Watch what a class may be given anew: a method of any sort, a property."""
        if (kind, name) not in self._methods:
            self._methods.add((kind, name))
            entries = entries_of(kind)
            if name in entries and not isinstance(entries[name], PLAIN):
                place = Place(entries, name, entries[name], f"{own_name(kind)}.{name}")
                self.found.places.append(place)

    def _open(self, value: Any, name: str) -> None:
        if isinstance(value, nn.Module):
            self._module(value, name)
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args):
                self.add(part, name)
            self.add(value.keywords, f"{name}.keywords" if name else "keywords")
            self._subclass(value, name)
        elif isinstance(value, dict | list | tuple | set | frozenset | deque):
            self._container(value, name)
            self._subclass(value, name)
        elif isinstance(value, random.SystemRandom):
            self.found.names.add("urandom")  # it has no state: what it draws is seen as it is drawn
        elif isinstance(value, _RANDOMS):
            self.found.randoms.append(value)
        elif isinstance(value, torch.Generator):
            self.found.generators.append(value)
        elif isinstance(value, Iterator) and not is_users_object(value):
            self.found.iterators.append((name, value))
        elif isinstance(value, Tensor):
            for key, held in list(vars(value).items()):
                self._attribute(vars(value), key, held, f"{name}.{key}", frozenset())
        elif isinstance(value, BUFFERS):
            self._buffer(value, name)
        elif isinstance(value, OUTLETS):
            self.found.outlets.append((name, value))
        elif isinstance(value, types.ModuleType):
            self._python_module(value)
        elif isinstance(value, type):
            self._class(value)
        elif is_users_object(value):
            self._object(value, name)
        else:  # a bound method, a graphed callable, a cached function, an `attrgetter`
            self.found.note(value)
            for each in held_by(value):
                self.add(each, name)

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
            told = f"the {kind} of {name or class_name(module)}"
            self.found.sizes.append(Size(entries, told, is_of_weights=True))
            for key, value in list(entries.items()):
                self._place(entries, key, value, f"{prefix}{key}")
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            self._hooks(hooks, f"{prefix}hooks")
        self._attributes(module, vars(module), prefix)

    def _hooks(self, hooks: dict[int, Any], name: str) -> None:
        self.found.sizes.append(Size(hooks, name))
        for number, hook in list(hooks.items()):
            self._place(hooks, number, hook, name)

    def _subclass(self, value: Any, name: str) -> None:
        """Open what a user's subclass of a container holds beside its entries."""
        if not is_library(type(value).__module__):
            self._object(value, name)

    def _object(self, value: Any, name: str) -> None:
        if is_library(type(value).__module__) and not is_config(value):
            self.found.stores |= {ANY_NAME, ENTRIES}  # its methods are not walked
        prefix = f"{name}." if name else f"{class_name(value)}."
        if isinstance(attributes := getattr(value, "__dict__", None), dict):
            self._attributes(value, attributes, prefix)
        for slot in slots_of(type(value)):
            held = getattr(value, slot, ABSENT)
            self._attribute(value, slot, held, f"{prefix}{slot}", frozenset())

    def _attributes(self, owner: object, attributes: dict[str, Any], prefix: str) -> None:
        """Watch the attributes that some code reads, and tensors and objects in any case."""
        kind = type(owner)
        self.found.holders.append((prefix.removesuffix("."), attributes))
        self.found.sizes.append(Size(attributes, prefix, frozenset(attributes)))
        own = self._names_of(kind)
        skipped = _MODULE_INTERNALS
        if is_config(owner):  # decorators and masks read it, in code that is not walked
            own, skipped = frozenset(attributes), BOOKKEEPING
        for key, held in list(attributes.items()):
            if key not in skipped:
                self._attribute(attributes, key, held, f"{prefix}{key}", own)
        self._visit(kind, own_name(kind))

    def _attribute(
        self, container: Any, key: str, held: object, name: str, own: frozenset[str]
    ) -> None:
        if isinstance(held, PLAIN):
            self._plain.append((own, Place(container, key, held, name)))
        else:
            if isinstance(held, UNORDERED + BUFFERS):
                self._key_of.setdefault(id(held), key)
            self._place(container, key, held, name)

    def _names_of(self, kind: type) -> frozenset[str]:
        names = self._read_by.get(kind)
        if names is None:
            is_users = not is_library(kind.__module__)  # then its methods are walked
            names, stored = (frozenset(), frozenset()) if is_users else names_of_class(kind)
            self._read_by[kind] = names
            self.found.stores |= stored
        return names

    def _class(self, kind: type) -> None:
        """Watch what a class gives its objects: its `forward`, and the values it holds."""
        if is_library(kind.__module__):
            if issubclass(kind, nn.Module):
                self._library_class(kind)
            return
        self.found.classes.append(kind)
        entries = entries_of(kind)
        self.found.sizes.append(Size(entries, f"{own_name(kind)}.", frozenset(entries)))
        for key, held in list(entries.items()):
            if key.startswith("__") or isinstance(held, DESCRIPTORS):
                continue
            self._attribute(entries, key, held, f"{own_name(kind)}.{key}", frozenset())
        for base in kind.__bases__:
            self._visit(base, own_name(base))

    def _library_class(self, kind: type[nn.Module]) -> None:
        """Watch the methods that a call of a library's module goes through, and what they call."""
        names, _ = names_of_class(kind)
        for base in kind.__mro__:
            entries = entries_of(base)
            wanted = _OF_EVERY_MODULE if base is nn.Module else names & entries.keys()
            for name in sorted(wanted):
                self._method(base, name)
                method = inspect.unwrap(getattr(entries[name], "__func__", entries[name]))
                if base is not nn.Module and isinstance(method, types.FunctionType):
                    self._may_be_patched(method)
            if base is nn.Module:
                return

    def _may_be_patched(self, function: types.FunctionType) -> None:
        for place in patchable(function):
            where = (id(place.container), place.key)
            if where not in self._patchable:
                self._patchable.add(where)
                self._place(place.container, place.key, place.value, place.name)

    def _buffer(self, value: Any, name: str) -> None:
        if is_fixed(value):
            return
        reason = too_large(value)
        if reason:
            self.found.unwatched.append((name, f"{class_name(value)} {name}, and {reason}"))
        else:
            self._changing.append((name, value))

    def _container(self, value: Any, name: str) -> None:
        if not isinstance(value, tuple | frozenset):
            self.found.containers.append((name or class_name(value), value))
            self.found.sizes.append(Size(value, name or class_name(value)))
        if len(value) > _LARGEST_CONTAINER:
            return
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, held in list(items):
                self._place(value, key, held, f"{name}[{key!r}]")
        else:
            for held in list(value):
                self.add(held, name)
            if isinstance(value, UNORDERED):
                self._changing.append((name or class_name(value), value))

    def _function(self, function: types.FunctionType, name: str) -> None:
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            held = getattr(cell, "cell_contents", ABSENT)
            if variable == "__class__":
                continue
            self._place(cell, "cell_contents", held, variable)
        if not is_library(function.__module__):
            self._globals(function)
            self._may_be_patched(function)
            self.found.functions.append(function)
            self.found.names |= names_read(code)
            if computes_names(code):
                self.found.reads_any_name = True
                self._parts |= parts_of_names(code)
            self.found.stores |= names_stored(code)
            self._own_parts(function)
        for held in function.__defaults__ or ():
            self.add(held, name)
        if function.__kwdefaults__:  # a dict, whose entries may be exchanged
            self.add(function.__kwdefaults__, f"{function.__name__}.__kwdefaults__")
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
        names, asked = function.__globals__, only_asked_about(function.__code__)
        for variable in sorted(globals_read(function)):
            if variable in names and not variable.startswith("__"):
                held = names[variable]
                if is_worth_watching(held):
                    self._place(names, variable, held, f"{variable} (a global)")
                else:
                    (self._visit if variable in asked else self.add)(held, variable)
        for module in modules_found(function):
            self.add(module, module.__name__)
        for variable in globals_stored(function.__code__):
            held = names.get(variable, ABSENT)
            self.found.stored.append(Place(names, variable, held, f"{variable} (a global)"))

    def _python_module(self, module: types.ModuleType) -> None:
        if is_library(module.__name__):
            return
        self._python_modules.append(module)
        for key, held in list(vars(module).items()):
            if isinstance(held, PLAIN) and not key.startswith("__"):
                self._attribute(vars(module), key, held, f"{module.__name__}.{key}", frozenset())


_MODULE_INTERNALS = frozenset(vars(nn.Module())) | {"training"}
_OF_EVERY_MODULE = ("__call__", "_call_impl", "_wrapped_call_impl")
