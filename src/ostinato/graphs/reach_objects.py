"""Opening what holds values: modules, containers, arrays, plain objects and their attributes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ostinato.class_name import class_name, own_name
from ostinato.graphs.contents import UNORDERED, is_fixed, too_large
from ostinato.graphs.libraries import BOOKKEEPING, is_config, is_library, slots_of
from ostinato.graphs.places import ABSENT, LARGEST_CONTAINER, PLAIN, Place, Size
from ostinato.graphs.reading import ANY_NAME, ENTRIES, names_of_class
from ostinato.graphs.trail import Trail

_LONGEST_PATH = 400
_MODULE_INTERNALS = frozenset(vars(nn.Module())) | {"training"}


def open_module(trail: Trail, module: nn.Module, name: str) -> None:
    """Watch its parameters, buffers, parts, hooks and attributes."""
    found = trail.found
    found.modules[id(module)] = (name, module)
    prefix = f"{name}." if name else ""
    own = {"parameters": module._parameters, "buffers": module._buffers}
    for kind, entries in (*own.items(), ("parts", module._modules)):
        if not isinstance(entries, dict):
            continue  # a scripted module answers from C++
        found.holders.append((name, entries))
        told = f"the {kind} of {name or class_name(module)}"
        found.sizes.append(Size(entries, told, is_of_weights=True))
        for key, value in list(entries.items()):
            trail.place(entries, key, value, f"{prefix}{key}")
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        open_hooks(trail, hooks, f"{prefix}hooks")
    _open_attributes(trail, module, vars(module), prefix)
    trail.visit(type(module), own_name(type(module)))


def open_hooks(trail: Trail, hooks: dict[int, Any], name: str) -> None:
    """Watch which hooks there are."""
    trail.found.sizes.append(Size(hooks, name))
    for number, hook in list(hooks.items()):
        trail.place(hooks, number, hook, name)


def open_container(trail: Trail, value: Any, name: str) -> None:
    """Watch the entries of a dict, list, tuple, set or deque, and its length."""
    if not isinstance(value, tuple | frozenset):
        trail.found.containers.append((name or class_name(value), value))
        trail.found.sizes.append(Size(value, name or class_name(value)))
    if len(value) > LARGEST_CONTAINER:
        return
    if isinstance(value, dict | list):
        # Through the base classes, as in C: a subclass may translate what it is asked.
        entries = list(
            dict.items(value) if isinstance(value, dict) else enumerate(list.__iter__(value))
        )
        for key, held in entries:
            if type(key) is not str:
                trail.add(key, name)
            trail.place(value, key, held, _path_of(name, key))
    else:
        for held in list(value):
            trail.add(held, name)
        if isinstance(value, UNORDERED):
            trail.changing.append((name or class_name(value), value))


def _path_of(name: str, key: object) -> str:
    if len(name) >= _LONGEST_PATH:
        return name
    # A tensor would be read, and shown with all its numbers.
    return f"{name}[{class_name(key) if isinstance(key, Tensor) else repr(key)}]"


def open_subclass(trail: Trail, value: Any, name: str) -> None:
    """Open what a user's subclass of a container holds beside its entries."""
    if not is_library(type(value).__module__):
        open_object(trail, value, name)


def open_buffer(trail: Trail, value: Any, name: str) -> None:
    """Have the contents of an array compared, or say why they cannot be."""
    if is_fixed(value):
        return
    reason = too_large(value)
    if reason:
        trail.found.unwatched.append((name, f"{class_name(value)} {name}, and {reason}"))
    else:
        trail.changing.append((name, value))


def open_object(trail: Trail, value: Any, name: str) -> None:
    """Watch the attributes and slots of an object that is none of a library's."""
    if is_library(type(value).__module__) and not is_config(value):
        trail.found.stores |= {ANY_NAME, ENTRIES}  # its methods are not walked
    if type(value).__module__.startswith("_cython"):  # a function of numpy's
        trail.found.called.add(value.__name__)
    prefix = f"{name}." if name else f"{class_name(value)}."
    if isinstance(attributes := getattr(value, "__dict__", None), dict):
        _open_attributes(trail, value, attributes, prefix)
    own = _names_of(trail, type(value))
    for slot in slots_of(type(value)):
        held = getattr(value, slot, ABSENT)
        trail.attribute(value, slot, held, f"{prefix}{slot}", own)
        if isinstance(held, PLAIN):  # a run may set it without reading it
            trail.found.stored.append(Place(value, slot, held, f"{prefix}{slot}"))
    trail.visit(type(value), own_name(type(value)))


def _open_attributes(trail: Trail, owner: object, attributes: dict[str, Any], prefix: str) -> None:
    """Watch the attributes that some code reads, and tensors and objects in any case."""
    kind = type(owner)
    trail.found.holders.append((prefix.removesuffix("."), attributes))
    trail.found.sizes.append(Size(attributes, prefix, frozenset(attributes)))
    own = _names_of(trail, kind)
    skipped = _MODULE_INTERNALS
    if is_config(owner):  # decorators and masks read it, in code that is not walked
        own, skipped = frozenset(attributes), BOOKKEEPING
    for key, held in list(attributes.items()):
        if key not in skipped:
            trail.attribute(attributes, key, held, f"{prefix}{key}", own)


def _names_of(trail: Trail, kind: type) -> frozenset[str]:
    names = trail.read_by.get(kind)
    if names is None:
        is_users = not is_library(kind.__module__)  # then its methods are walked
        names, stored = (frozenset(), frozenset()) if is_users else names_of_class(kind)
        trail.read_by[kind] = names
        trail.found.stores |= stored
    return names
