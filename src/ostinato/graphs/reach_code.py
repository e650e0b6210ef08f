"""Opening what holds code: functions, classes and Python modules, and what their code names."""

from __future__ import annotations

import functools
import inspect
import sys
import types

from torch import nn

from ostinato.class_name import own_name
from ostinato.graphs.asked_about import only_asked_about
from ostinato.graphs.computed_names import computes_names, parts_of_names
from ostinato.graphs.global_names import globals_read, imports_to_come, modules_found
from ostinato.graphs.libraries import is_library, patchable
from ostinato.graphs.places import ABSENT, PLAIN, Place, Size, entries_of
from ostinato.graphs.reached import DESCRIPTORS, is_called_by_python
from ostinato.graphs.reading import (
    globals_stored,
    names_of_class,
    names_read,
    names_stored,
    variables_read,
)
from ostinato.graphs.trail import Trail

# What `functools.singledispatch` has found out before; its registry, which decides, is another.
_OF_DISPATCHING = frozenset({"dispatch_cache", "_clear_cache"})
_OF_EVERY_MODULE = ("__call__", "_call_impl", "_wrapped_call_impl")


def open_function(trail: Trail, function: types.FunctionType, name: str) -> None:
    """Watch its closure, its defaults and, of a user's, what its code names."""
    code, found = function.__code__, trail.found
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        held = getattr(cell, "cell_contents", ABSENT)
        if variable == "__class__" or variable in _OF_DISPATCHING:
            continue
        trail.place(cell, "cell_contents", held, variable)
    if is_library(function.__module__):
        found.called.add(function.__name__)
    else:
        _open_globals(trail, function)
        _may_be_patched(trail, function)
        found.functions.append(function)
        found.names |= names_read(code)
        if computes_names(code):
            found.reads_any_name = True
            trail.parts |= parts_of_names(code)
        found.stores |= names_stored(code)
        _open_own_parts(trail, function)
    for held in function.__defaults__ or ():
        trail.add(held, name)
    if function.__kwdefaults__:  # a dict, whose entries may be exchanged
        trail.add(function.__kwdefaults__, f"{function.__name__}.__kwdefaults__")
    trail.add(getattr(function, "__wrapped__", None), name)


def _open_own_parts(trail: Trail, function: types.FunctionType) -> None:
    """Watch a function's code, defaults and attributes."""
    path, attributes = function.__name__, function.__dict__
    trail.found.holders.append((path, attributes))
    trail.found.sizes.append(Size(attributes, f"{path}.", frozenset(attributes)))
    for key, held in list(attributes.items()):
        if key not in _OF_DISPATCHING:
            trail.attribute(attributes, key, held, f"{path}.{key}")
    for key in ("__code__", "__defaults__", "__kwdefaults__"):
        held = getattr(function, key)
        trail.found.places.append(Place(function, key, held, f"{path}.{key}"))


def _open_globals(trail: Trail, function: types.FunctionType) -> None:
    names, asked = function.__globals__, only_asked_about(function.__code__)
    for variable in sorted(globals_read(function)):
        if variable in names and not variable.startswith("__"):
            held = names[variable]
            with trail.trying(held, variable):
                trail.identity(names, variable, held, f"{variable} (a global)")
                (trail.visit if variable in asked else trail.add)(held, variable)
    for variable in sorted(variables_read(function.__code__) - names.keys()):
        if not variable.startswith("__"):  # nowhere, or a builtin that a global would hide
            trail.place_once(Place(names, variable, ABSENT, f"{variable} (a global)"))
    for name, module in modules_found(function):
        trail.identity(sys.modules, name, module, f"the module {name}")
        trail.add(module, module.__name__)
    for name in imports_to_come(function):
        # Imported by the run itself: once it is there, all is looked at again.
        trail.place_once(Place(sys.modules, name, ABSENT, f"the module {name}"))
    if "globals" in names_read(function.__code__):
        trail.found.containers.append(("globals()", names))
    for variable in globals_stored(function.__code__):
        held = names.get(variable, ABSENT)
        trail.found.stored.append(Place(names, variable, held, f"{variable} (a global)"))


def _may_be_patched(trail: Trail, function: types.FunctionType) -> None:
    for place in patchable(function):
        trail.place_once(place)


def open_class(trail: Trail, kind: type) -> None:
    """Watch what a class gives its objects: its `forward`, and the values it holds."""
    if is_library(kind.__module__):
        trail.found.called.add(kind.__name__)
        if issubclass(kind, nn.Module):
            _open_library_class(trail, kind)
        return
    entries = entries_of(kind)
    trail.found.classes.append(kind)
    trail.found.sizes.append(Size(entries, f"{own_name(kind)}.", frozenset(entries)))
    for key, held in list(entries.items()):
        if key.startswith("__") or isinstance(held, DESCRIPTORS):
            continue
        trail.attribute(entries, key, held, f"{own_name(kind)}.{key}")
    for base in kind.__bases__:
        trail.visit(base, own_name(base))


def _open_library_class(trail: Trail, kind: type[nn.Module]) -> None:
    """Watch the methods that a call of a library's module goes through, and what they call."""
    names, _ = names_of_class(kind)
    for base in kind.__mro__:
        entries = entries_of(base)
        wanted = _OF_EVERY_MODULE if base is nn.Module else names & entries.keys()
        for name in sorted(wanted):
            trail.method(base, name)
            method = inspect.unwrap(getattr(entries[name], "__func__", entries[name]))
            if base is not nn.Module and isinstance(method, types.FunctionType):
                _may_be_patched(trail, method)
        if base is nn.Module:
            return


def open_methods(trail: Trail, kind: type, named: frozenset[str]) -> None:
    """Open the methods of a user's class that the code names, or that Python calls by itself."""
    for name, member in list(vars(kind).items()):
        is_named = name in trail.found.names or name in named
        if isinstance(member, property):  # whoever assigns it runs what stores it
            is_named = is_named or name in trail.found.stores
        if not is_named and not is_called_by_python(name, member, kind in trail.made):
            continue
        if isinstance(member, classmethod):  # it is handed the class
            trail.add(kind, own_name(kind))
        of_property = (getattr(member, each, None) for each in ("fget", "fset", "fdel"))
        for method in (*of_property, getattr(member, "__func__", member)):
            if isinstance(method, types.FunctionType | functools._lru_cache_wrapper):
                trail.add(method, own_name(kind))
        trail.method(kind, name)


def open_python_module(trail: Trail, module: types.ModuleType) -> None:
    """Watch the plain values in a user's module; the rest as the code names it."""
    if is_library(module.__name__):
        trail.library_modules.append(module)
        return
    entries = vars(module)
    trail.python_modules.append(module)
    trail.found.holders.append((module.__name__, entries))
    trail.found.sizes.append(Size(entries, f"{module.__name__}.", frozenset(entries)))
    for key, held in list(entries.items()):
        if isinstance(key, str) and isinstance(held, PLAIN) and not key.startswith("__"):
            trail.attribute(entries, key, held, f"{module.__name__}.{key}")
    # Asked for every name that is not there; it may come and go like any other function.
    asked = entries.get("__getattr__", ABSENT)
    trail.place_once(Place(entries, "__getattr__", asked, f"{module.__name__}.__getattr__"))


def open_parts(trail: Trail, module: types.ModuleType, named: frozenset[str]) -> None:
    """Open the parts of a user's module that the code read so far names.

    Of those that it may find by a name which it makes, only what they are is compared: a module
    holds all that its file imports.

    Args:
        named: What such a name may be made of shows that these may be meant.
    """
    entries = vars(module)
    for name in (trail.found.names | named) & entries.keys():
        if name.startswith("__") or not isinstance(entries[name], PLAIN):
            trail.place_once(Place(entries, name, entries[name], f"{module.__name__}.{name}"))
    if trail.found.reads_any_name:
        for key, held in list(entries.items()):
            if isinstance(key, str) and not (key.startswith("__") or isinstance(held, PLAIN)):
                trail.identity(entries, key, held, f"{module.__name__}.{key}")
