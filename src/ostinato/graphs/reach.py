"""What a callable can reach: the modules, tensors and Python values that its runs may read.

A recording freezes all of it. Parameters are found through modules, wherever the callable holds
them: itself, `self` of a bound method, closure cells, globals it names, defaults, partials,
containers and plain objects. The walk runs when something changed, never on a replay.

`_open` says what is opened how. What is found inside is laid down in `trail.py`.
"""

from __future__ import annotations

import functools
import random
import threading
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ostinato.graphs.computed_names import composed
from ostinato.graphs.contents import BUFFERS, Contents
from ostinato.graphs.held_by import held_by
from ostinato.graphs.libraries import is_users_object
from ostinato.graphs.outlets import OUTLETS, methods_of_outlet
from ostinato.graphs.places import ABSENT, Place
from ostinato.graphs.random_states import RANDOMS, try_state
from ostinato.graphs.reach_code import (
    open_class,
    open_function,
    open_methods,
    open_parts,
    open_python_module,
)
from ostinato.graphs.reach_objects import (
    open_buffer,
    open_container,
    open_hooks,
    open_module,
    open_object,
    open_subclass,
)
from ostinato.graphs.reached import Reach
from ostinato.graphs.reading import ANY_NAME, ENTRIES, names_stored
from ostinato.graphs.source_lines import is_own
from ostinato.graphs.trail import Trail

__all__ = ["Reach", "reach"]


def reach(*roots: object) -> Reach:
    """Walk from `roots` and return what their runs may read."""
    trail = Trail()
    for root in roots:
        trail.add(root, "")
    of_all = (
        torch_module._global_forward_hooks,
        torch_module._global_forward_pre_hooks,
    )
    for hooks in of_all:
        open_hooks(trail, hooks, "the hooks of all modules")
    while trail.ahead or _name_more(trail):
        value, name = trail.ahead.popleft()
        with trail.trying(value, name):
            _open(trail, value, name)
    return _settled(trail)


def _name_more(trail: Trail) -> bool:
    """Open the methods, and the parts of Python modules, that the code read so far names."""
    from_parts = _composed(trail) if trail.found.reads_any_name else frozenset()
    trail.found.read_positions()
    for kind in trail.found.classes:
        with trail.trying(kind, "its methods"):
            open_methods(trail, kind, from_parts)
    for module in trail.python_modules:
        with trail.trying(module, "its parts"):
            open_parts(trail, module, from_parts)
    return bool(trail.ahead)


def _composed(trail: Trail) -> frozenset[str]:
    """What a computed name may mean in a class or a module: a string shows a part of its name."""
    places = (*trail.found.places, *(place for _, place in trail.plain))
    # The bare text: a subclass of `str` may not be hashable.
    words = {str.__str__(each.value) for each in places if issubclass(type(each.value), str)}
    holders = (*trail.found.classes, *trail.python_modules)
    names = (name for each in holders for name in vars(each) if isinstance(name, str))
    return composed(names, words, trail.parts)


def _open(trail: Trail, value: Any, name: str) -> None:
    found = trail.found
    if isinstance(value, nn.Module):
        open_module(trail, value, name)
    elif isinstance(value, types.FunctionType):
        open_function(trail, value, name)
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args):
            trail.add(part, name)
        trail.add(value.keywords, f"{name}.keywords" if name else "keywords")
        open_subclass(trail, value, name)
    elif isinstance(value, dict | list | tuple | set | frozenset | deque):
        open_container(trail, value, name)
        open_subclass(trail, value, name)
    elif isinstance(value, random.SystemRandom):
        found.names.add("urandom")  # it has no state: what it draws is seen as it is drawn
    elif isinstance(value, RANDOMS):
        try_state(value)
        found.randoms.append(value)
    elif isinstance(value, torch.Generator):
        found.generators.append(value)
    elif isinstance(value, Iterator) and not is_users_object(value):
        found.iterators.append((name, value))
    elif isinstance(value, Tensor):
        found.holders.append((name, vars(value)))  # a run may set more of them
        for key, held in list(vars(value).items()):
            trail.attribute(vars(value), key, held, f"{name}.{key}")
    elif isinstance(value, threading.local):
        found.holders.append((name, vars(value)))  # those of the thread that records
    elif isinstance(value, BUFFERS):
        open_buffer(trail, value, name)
    elif isinstance(value, OUTLETS):
        found.outlets.append((name, value))
    elif isinstance(value, types.ModuleType):
        open_python_module(trail, value)
    elif isinstance(value, type):
        open_class(trail, value)
    elif is_users_object(value):
        open_object(trail, value, name)
    else:  # a bound method, a graphed callable, a cached function, an `attrgetter`
        found.note(value)
        for each in held_by(value):
            trail.add(each, name)


def _stored_by_users(found: Reach) -> set[str]:
    users = (each.__code__ for each in found.functions if is_own(each.__code__.co_filename))
    return set().union(*map(names_stored, users)) - {ANY_NAME, ENTRIES}


def _settled(trail: Trail) -> Reach:
    """Keep what the code may read: only at the end is it known which names it reads, and whose."""
    found, read = trail.found, trail.found.names
    found.places += [
        place for own, place in trail.plain if found.may_read(place.key) or place.key in own
    ]
    for names in trail.read_by.values():
        read |= names
    stored = sorted(_stored_by_users(found)) if trail.library_modules else ()
    found.stored += [
        Place(vars(module), name, vars(module).get(name, ABSENT), f"{module.__name__}.{name}")
        for module in trail.library_modules
        for name in stored
    ]
    found.read_environment()
    found.iterators = [each for each in found.iterators if found.may_name(each[0])]
    found.unreadable = [each for each in found.unreadable if found.may_name(each[0])]
    found.unwatched = [each for each in found.unwatched if found.may_name(each[0])]
    # Comparing these takes a microsecond, so only those that the code names.
    for name, held in trail.changing:
        if found.may_name(name) and found.may_read(trail.key_of.get(id(held), "forward")):
            with trail.trying(held, name):
                found.contents.append((name, Contents(held)))
    found.places += [Place(each, "now", each.now, name) for name, each in found.contents]
    found.outlets = [
        (name, held)
        for name, held in found.outlets
        if found.may_name(name) and read & methods_of_outlet(held)
    ]
    return found
