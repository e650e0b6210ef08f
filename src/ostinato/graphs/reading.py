"""Which names a piece of code loads and stores: what a run of it may read, and where it assigns.

Static and cheap: bytecode only. `reach.py` asks, to watch the attributes that matter.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
import types
from collections.abc import Iterable

from torch import nn

from ostinato.graphs.source_lines import is_own, line_at

_STORES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR", "DELETE_GLOBAL"})
_BY_STRING = frozenset({"getattr", "hasattr", "setattr", "attrgetter", "methodcaller",
                        "__getattribute__", "getattr_static"})  # fmt: skip
_FIELD = re.compile(r"\.(\w+)")


@functools.cache
def names_read(code: types.CodeType) -> frozenset[str]:
    """Return the global and attribute names that `code`, and code nested in it, load.

    And those that the user's own code imports from modules.
    """
    reading = ("LOAD_", "IMPORT_FROM") if is_own(code.co_filename) else "LOAD_"
    names: set[str] = set()
    given: object = None
    for instruction in dis.get_instructions(code):
        # Not by a list: Python 3.12 has one more in class bodies, and later ones may have others.
        if instruction.opcode in dis.hasname and instruction.opname.startswith(reading):
            names.add(instruction.argval)
        elif instruction.opname == "MATCH_CLASS" and isinstance(given, tuple):
            names.update(given, ("__match_args__",) if instruction.arg else ())
        given = instruction.argval  # `case Model(scale=s)` has its names laid on the stack
    if names & _BY_STRING:
        names |= {constant for constant in code.co_consts if isinstance(constant, str)}
    if "format" in names:  # "{0.scale}".format(model)
        strings = (constant for constant in code.co_consts if isinstance(constant, str))
        names.update(*(_FIELD.findall(each) for each in strings if "{" in each))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_read(constant)
    return frozenset(names)


# Calls that change a container, or an attribute whose name is not in the code.
_CHANGES_CONTAINERS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "clear",
        "update",
        "setdefault",
        "add",
        "discard",
        "appendleft",
        "popleft",
        "extendleft",
        "sort",
        "reverse",
        "move_to_end",
        "__setitem__",
        "__delitem__",
        "setitem",
        "rotate",
        "exec",
        "eval",
        "heappush",
        "heappop",
    ]
)
_STORES_ANY_NAME = frozenset(
    [
        "setattr",
        "delattr",
        "__dict__",
        "vars",
        "globals",
        "exec",
        "eval",
        "__setattr__",
        "register_buffer",
        "to",
        "train",
        "eval",
        "register_parameter",
        "add_module",
        "register_module",
        "load_state_dict",
        "apply",
        "requires_grad_",
        "_parameters",
        "_buffers",
        "_modules",
    ]
)
_ENTRIES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
ANY_NAME = "*"
ENTRIES = "[]"


@functools.cache
def names_stored(code: types.CodeType) -> frozenset[str]:
    """Return the names that `code`, and code nested in it, may assign.

    `ANY_NAME` stands for names that cannot be told, `ENTRIES` for those of containers.
    """
    names = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _STORES:
            names.add(instruction.argval)
        elif instruction.opname in _ENTRIES:
            names.add(ENTRIES)
    read = names_read(code)
    if read & _CHANGES_CONTAINERS:
        names.add(ENTRIES)
    if read & _STORES_ANY_NAME:
        names.add(ANY_NAME)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_stored(constant)
    return frozenset(names)


def changes_container(value: object) -> bool:
    """Whether `value` is a method of a container, bound to one, that changes it: `log.append`."""
    if not isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        return False
    return value.__name__ in _CHANGES_CONTAINERS


@functools.cache
def globals_stored(code: types.CodeType) -> frozenset[str]:
    """Return the global names that `code`, and code nested in it, assign."""
    stores = ("STORE_GLOBAL", "DELETE_GLOBAL")
    names = {i.argval for i in dis.get_instructions(code) if i.opname in stores}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= globals_stored(constant)
    return frozenset(names)


@functools.cache
def variables_read(code: types.CodeType) -> frozenset[str]:
    """Return the names that `code`, and code nested in it, look up among globals and builtins."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    names = {i.argval for i in dis.get_instructions(code) if i.opname in loads}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= variables_read(constant)
    return frozenset(names)


def line_storing(functions: Iterable[types.FunctionType], name: str) -> str | None:
    """Return the first line that assigns an attribute or variable called `name`, or None."""
    for function in functions:
        line = _line_in(function.__code__, name)
        if line is not None:
            return line_at(function.__code__.co_filename, line)
    return None


def _line_in(code: types.CodeType, name: str) -> int | None:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _STORES and instruction.argval == name:
            return instruction.positions.lineno if instruction.positions else None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found = _line_in(constant, name)
            if found is not None:
                return found
    return None


def names_of_class(kind: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a call of a `kind` may load, and those it may store."""
    names: set[str] = set()
    stored: set[str] = set()
    waiting = {"forward", "__call__"}
    while waiting:
        name = waiting.pop()
        names.add(name)
        for base in kind.__mro__:
            if base is nn.Module:
                break
            member = vars(base).get(name)
            inner = getattr(member, "fget", getattr(member, "__func__", member))
            if isinstance(inner, types.FunctionType):
                code = inspect.unwrap(inner).__code__
                waiting |= names_read(code) - names
                stored |= names_stored(code)
    return frozenset(names), frozenset(stored)
