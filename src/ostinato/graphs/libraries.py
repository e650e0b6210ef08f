"""Whose an object is: the user's, whose insides a run may read, or a library's, left alone.

`reach.py` asks on its walk. Libraries are large and nearly all of them never changes; what people
do change there is named here: configurations of transformers, and functions that are patched.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections import UserDict, UserList
from collections.abc import Iterator

import torch
from torch import Tensor

from ostinato.graphs.places import Place
from ostinato.graphs.reading import names_read

# Triton writes files and draws names for them while it compiles; a replay has compiled long ago.
_LIBRARIES = (
    sys.stdlib_module_names | {"torch", "triton", "numpy", "transformers", "ostinato"}
) - {"test"}
# Of the standard library, what people keep their own values in.
_HOLDERS = (types.SimpleNamespace, UserDict, UserList, argparse.Namespace)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
# Functions in these are exchanged by torch itself, and by our own watching of a run.
_NEVER_WATCHED = ("torch.cuda", "torch.cpu", "torch.accelerator", "torch.compiler", "torch._",
                  "torch.overrides", "torch.utils", "ostinato")  # fmt: skip
# What a configuration says about the checkpoint, and nothing about a run: tables of thousands.
BOOKKEEPING = frozenset(
    {"id2label", "label2id", "architectures", "transformers_version", "_name_or_path"}
)


def is_library(module: object) -> bool:
    """Whether a module of this name belongs to a library that is not walked.

    What is no name is somebody's own `__module__`, and no library's.
    """
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def is_config(value: object) -> bool:
    """Whether `value` is a configuration of a transformers model, whoever wrote its class."""
    return any(
        base.__module__ == "transformers.configuration_utils" for base in type(value).__mro__
    )


def is_users_object(value: object) -> bool:
    """Whether `value` is an object whose attributes a run may read, and no library's own."""
    if isinstance(value, Tensor | torch.Generator | types.BuiltinFunctionType):
        return False
    # Without either it holds nothing, as what C made; with no slots it may still have methods.
    has_slots = any("__slots__" in vars(base) for base in type(value).__mro__)
    if not hasattr(value, "__dict__") and not has_slots:
        return False
    # Library objects are walked when they may hold tensors that a run reads, such as a KV cache.
    module = type(value).__module__
    return (
        isinstance(value, _HOLDERS)
        or not is_library(module)
        or str(module).startswith("transformers.cache_utils")
        or is_config(value)
    )


def slots_of(kind: type) -> Iterator[str]:
    """Yield the names of the slots of a class and its bases."""
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{slot}" if private else slot


def is_worth_watching(value: object) -> bool:
    """Whether a global may be exchanged in the course of things: no module, class or import."""
    if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return False
    if isinstance(value, types.FunctionType):
        return not is_library(value.__module__)
    return True


def patchable(function: types.FunctionType) -> Iterator[Place]:
    """Yield the functions of libraries that `function` calls by name, where one patches them.

    `F.relu` is looked up in `F`, a function that was imported by name in the globals.
    """
    names = names_read(function.__code__)
    own = function.__globals__
    modules = {id(own): own}
    waiting = [own]
    while waiting:
        held_by = waiting.pop()
        for name in names & held_by.keys():
            held = held_by[name]
            is_library_module = isinstance(held, types.ModuleType) and _may_be_patched(held)
            if is_library_module and id(vars(held)) not in modules:
                modules[id(vars(held))] = vars(held)
                waiting.append(vars(held))
    for inside in modules.values():
        for name in sorted(names & inside.keys()):
            held = inside[name]
            # Its own globals that the user wrote are watched with the rest.
            if isinstance(held, _FUNCTIONS) and (inside is not own or not is_worth_watching(held)):
                yield Place(inside, name, held, f"{inside.get('__name__', '')}.{name}")


def _may_be_patched(module: types.ModuleType) -> bool:
    return is_library(module.__name__) and not module.__name__.startswith(_NEVER_WATCHED)
