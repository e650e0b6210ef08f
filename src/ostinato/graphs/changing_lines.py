"""Which line changes a container in place: `self.seen += [1]`, `log.append(x)`, `insort(log, x)`.

Read from the bytecode, for people: a run has shown that something changed, and this says where to
look. The container goes by the last part of its path, and by every variable it was assigned to.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable
from dataclasses import dataclass, field

from ostinato.graphs.source_lines import line_at

_WRITES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_RUNS_TEXT = frozenset({"exec", "eval"})
_OF_OBJECTS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ONLY_READ = frozenset({"get", "items", "keys", "values", "copy", "index", "count", "union",
                        "intersection", "difference", "issubset", "issuperset"})  # fmt: skip


@dataclass(slots=True)
class _Line:
    """What one line of code does.

    Attributes:
        loads: Names of what it loads.
        keeps: Variables that it assigns.
        asked: Names of what it asks for a method or an attribute, but for those that only read.
        writes: Whether it assigns an entry.
        adds: Whether it changes what it keeps in place: `log += [x]`.
        calls: Whether it calls anything.
    """

    code: types.CodeType
    number: int
    loads: set[str] = field(default_factory=set)
    keeps: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    writes: bool = False
    adds: bool = False
    calls: bool = False


def line_changing(functions: Iterable[types.FunctionType], path: str) -> str | None:
    """Return the line that changes the container at `path`, as "model.py:88 `log += [1]`".

    None where no line is likely to be the one.
    """
    lines = [line for function in functions for line in _lines(function.__code__)]
    names = _names_of(path, lines)
    likely = (
        [each for each in lines if each.adds and each.keeps & names],
        [each for each in lines if each.writes and each.loads & names],
        [each for each in lines if each.calls and each.asked & names],
        [each for each in lines if each.calls and each.loads & names],
        [each for each in lines if each.calls and each.loads & _RUNS_TEXT],
    )
    for found in likely:
        if found:
            return line_at(found[0].code.co_filename, found[0].number)
    return None


def _names_of(path: str, lines: list[_Line]) -> set[str]:
    """The attribute or variable that a path ends with, and the variables it is assigned to."""
    names = {path.partition("[")[0].partition(" ")[0].rpartition(".")[2]}
    size = 0
    while len(names) > size:
        size = len(names)
        names.update(*(line.keeps for line in lines if line.loads & names and not line.calls))
    return names


@functools.cache
def _lines(code: types.CodeType) -> tuple[_Line, ...]:
    lines: dict[int, _Line] = {}
    latest: object = None
    for each in dis.get_instructions(code):
        number = each.positions.lineno if each.positions else None
        if number is None:
            continue
        line = lines.setdefault(number, _Line(code, number))
        if each.opname.startswith("LOAD_") and each.opcode not in dis.hasconst:
            line.loads.update(_named(each.argval))
            if each.opname in _OF_OBJECTS and each.argval not in _ONLY_READ:
                line.asked.update(_named(latest))
            latest = each.argval
        elif each.opname.startswith(
            ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_ATTR", "STORE_GLOBAL")
        ):
            line.keeps.update(_named(each.argval))
        if each.opname in _WRITES:
            line.writes = True
        elif each.opname == "BINARY_OP" and each.argrepr.endswith("="):
            line.adds = True
        line.calls = line.calls or each.opname.startswith("CALL")
    nested = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return (*lines.values(), *(line for each in nested for line in _lines(each)))


def _named(argument: object) -> tuple[str, ...]:
    """The names of an instruction; Python 3.13 loads two variables with one."""
    if isinstance(argument, tuple):
        return tuple(each for each in argument if isinstance(each, str))
    return (argument,) if isinstance(argument, str) else ()
