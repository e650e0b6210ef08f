"""Does code look things up by a name that does not stand in it, as `getattr(self, f"w_{n}")` does?

Then what it reads may be called anything, and `reach.py` has every attribute watched. Bytecode
only. A call whose name is a constant is none, and neither is one in a `__getattr__` that passes on
the name it was asked for: whoever asked has said it.
"""

from __future__ import annotations

import dis
import functools
import re
import types
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter, methodcaller

# Whatever else takes a name finds a variable, or what an import brings: a later Python may have
# more ways, and one that is not known must not go unseen.
_PUT_AWAY = ("STORE_", "DELETE_")
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
# Where, among what is given to these, the name stands. A bound `__getattribute__` is given no more.
_PLACES_OF_NAME = {"getattr": (1,), "hasattr": (1,), "getattr_static": (1,), "attrgetter": (0,),
                   "methodcaller": (0,), "__getattribute__": (0, 1)}  # fmt: skip
_ALL_NAMES = frozenset({"vars", "__dict__", "asdict", "astuple", "getmembers",
                        "__getstate__", "__reduce__", "__reduce_ex__"})  # fmt: skip
_BUILTINS = frozenset({"getattr", "hasattr", "vars"})  # found as variables, the rest also elsewhere
_OF_GLOBALS = frozenset({"globals", "eval", "exec"})
CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"  # Python 3.11 has both, one after the other
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_PASSING_ON = frozenset({"__getattr__", "__getattribute__"})
_SHORTEST_PART = 2


@functools.cache
def computes_names(code: types.CodeType) -> bool:
    """Whether `code`, or code nested in it, reads attributes whose names do not stand in it."""
    instructions = list(dis.get_instructions(code))
    for at, each in enumerate(instructions):
        is_attribute = each.opname in ATTRIBUTES
        if not is_attribute and not _finds_a_variable(each):
            continue
        if is_attribute and each.argval in _BUILTINS:  # no more than an attribute of that name
            continue
        if each.argval in _ALL_NAMES or _is_of_globals(each):
            return True
        places = _PLACES_OF_NAME.get(each.argval, ())
        following = instructions[at + 1 :] if places else ()
        if places and not any(_is_told(code, each, following, place) for place in places):
            return True
    return any(map(computes_names, _nested(code)))


@functools.cache
def computes_globals(code: types.CodeType) -> bool:
    """Whether `code`, or code nested in it, may read any global of its module."""
    own = any(map(_is_of_globals, dis.get_instructions(code)))
    return own or any(map(computes_globals, _nested(code)))


@functools.cache
def parts_of_names(code: types.CodeType) -> frozenset[str]:
    """Return what a computed name may be made of: the words in the strings of `code`."""
    words = {word for each in strings_in(code) for word in re.findall(r"\w+", each)}
    return frozenset(word for word in words if len(word) >= _SHORTEST_PART)


def strings_in(code: types.CodeType) -> Iterator[str]:
    """Yield the strings that stand in `code`, and in code nested in it."""
    yield from (each for each in _flat(code.co_consts) if isinstance(each, str))
    for each in _nested(code):
        yield from strings_in(each)


def composed(
    names: Iterable[str], words: AbstractSet[str], parts: AbstractSet[str]
) -> frozenset[str]:
    """Return those of `names` that one of `words` is, or that hold one of `parts`."""
    holds_a_part = _any_of(frozenset(parts)).search
    return frozenset(
        name
        for name in names
        if not name.startswith("__") and (name in words or holds_a_part(name) is not None)
    )


@functools.lru_cache(maxsize=64)
def _any_of(parts: frozenset[str]) -> re.Pattern[str]:
    """Return what finds one of `parts`: a walk asks it of every name in thousands of modules."""
    return re.compile("|".join(map(re.escape, sorted(parts))) or r"(?!)")


def asks_any_name(value: object) -> bool:
    """Whether `value` is a `getattr`, under whatever name, also one that is bound to an object."""
    slots = (types.MethodWrapperType, types.WrapperDescriptorType)
    return value is getattr or (isinstance(value, slots) and value.__name__ == "__getattribute__")


def names_asked_by(value: object) -> frozenset[str]:
    """Return the names that an `attrgetter` or a `methodcaller` reads; of others, none."""
    if not isinstance(value, attrgetter | methodcaller):
        return frozenset()
    made = value.__reduce__()
    assert isinstance(made, tuple)
    kind, given = made[:2]
    if isinstance(kind, functools.partial):  # made with keywords
        given = kind.args
    paths = given[:1] if isinstance(value, methodcaller) else given
    return frozenset(name for path in paths for name in path.split("."))


def _flat(constants: Iterable[object]) -> Iterator[object]:
    for each in constants:
        if isinstance(each, tuple | frozenset):
            yield from _flat(each)
        else:
            yield each


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    return (each for each in code.co_consts if isinstance(each, types.CodeType))


def _is_of_globals(instruction: dis.Instruction) -> bool:
    # As a variable: `model.eval()` is no more than a method of that name.
    return _finds_a_variable(instruction) and instruction.argval in _OF_GLOBALS


def _finds_a_variable(instruction: dis.Instruction) -> bool:
    name = instruction.opname
    takes_a_name = instruction.opcode in dis.hasname
    return takes_a_name and name not in ATTRIBUTES and not name.startswith(_PUT_AWAY)


def _is_told(
    code: types.CodeType,
    loaded: dis.Instruction,
    following: Sequence[dis.Instruction],
    place: int,
) -> bool:
    """Whether what the function that was loaded is given at `place` is a name in the code.

    The arguments are followed on the stack, which is empty when the first is begun.
    """
    depth, is_told = 0, False
    for each in following:
        if each.opname == CALL and each.arg == depth:
            return is_told and (depth == 1 or loaded.argval != "attrgetter")
        if each.opcode in _JUMPS and depth > place:
            return False  # one name or another
        before, depth = depth, depth + dis.stack_effect(each.opcode, each.arg, jump=False)
        if depth < 0:
            return False  # the function itself was put away, under another name perhaps
        if each.opname == "PUSH_NULL" and before == 0:
            depth = 0  # belongs to the function
        elif before <= place and depth == place + 1:
            is_told = _is_name(code, loaded, each)
        elif depth <= place + 1:
            is_told = False  # it goes into what the name is made of
    return False


def _is_name(code: types.CodeType, loaded: dis.Instruction, given: dis.Instruction) -> bool:
    if given.opname == "LOAD_CONST":
        name = given.argval
        return isinstance(name, str) and not (loaded.argval == "attrgetter" and "." in name)
    last = given.argval[-1] if isinstance(given.argval, tuple) else given.argval
    is_asked = code.co_name in _PASSING_ON and len(code.co_varnames) > 1
    return is_asked and given.opname.startswith("LOAD_FAST") and last == code.co_varnames[1]
