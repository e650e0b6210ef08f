"""Does code that names a class make objects of it, or only ask about it?

`isinstance(x, C)`, `super(C, self)` and `except C` run no constructor of `C`. Bytecode only.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Sequence

from ostinato.graphs.computed_names import ATTRIBUTES, CALL

_ASKING = frozenset({"isinstance", "issubclass"})
# A load that is not known would make a class that is used look as if it were only asked about.
_LOADS = frozenset(
    name
    for name, opcode in dis.opmap.items()
    if name.startswith("LOAD_")
    and (name.endswith("DEREF") or (opcode in dis.hasname and name not in ATTRIBUTES))
)


@functools.cache
def only_asked_about(code: types.CodeType) -> frozenset[str]:
    """Return the variables that `code`, and code nested in it, load for no more than that."""
    asked, used = _sorted_out(code)
    return asked - used


@functools.cache
def _sorted_out(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    instructions = list(dis.get_instructions(code))
    asking = {place for at in range(len(instructions)) for place in _asked(instructions, at)}
    loads = [(at, each.argval) for at, each in enumerate(instructions) if each.opname in _LOADS]
    asked = frozenset(name for at, name in loads if at in asking)
    used = frozenset(name for at, name in loads if at not in asking)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _sorted_out(constant)
            asked, used = asked | inner[0], used | inner[1]
    return asked, used


def _asked(instructions: Sequence[dis.Instruction], at: int) -> Iterator[int]:
    """Yield the places of the classes that the instruction there asks about."""
    each = instructions[at]
    if each.opname == "CHECK_EXC_MATCH":
        yield at - 1
    elif each.opname == "MATCH_CLASS":
        yield at - 2  # the names that it reads lie between
    elif each.opname == "LOAD_GLOBAL" and each.argval == "super":
        yield at + 1
    elif each.opname == "LOAD_GLOBAL" and each.argval in _ASKING:
        yield from _second_argument(instructions, at)


def _second_argument(instructions: Sequence[dis.Instruction], at: int) -> Iterator[int]:
    """Yield the places of what the call begun there is given second: a class, or a tuple of them.

    The arguments are followed on the stack, which is empty when the first is begun. A second
    argument that is computed, by a call or with a branch, is no answer.
    """
    depth = 0
    given: list[int] = []
    for place in range(at + 1, len(instructions)):
        each = instructions[place]
        if each.opname == CALL and depth == each.arg == 2:
            yield from given
            return
        before, depth = depth, depth + dis.stack_effect(each.opcode, each.arg, jump=False)
        if depth < 0:
            return  # the function itself was put away: what follows is given to another
        if each.opname == "PUSH_NULL" and before == 0:
            depth = 0  # belongs to the function
        elif before == 0:
            given.clear()
        if before >= 1 and each.opname in _LOADS:
            given.append(place)
        elif each.opname != "BUILD_TUPLE":
            given.clear()  # it was part of the first, or is computed with
