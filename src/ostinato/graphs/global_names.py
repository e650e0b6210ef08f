"""Which globals of its file, and which other files, the code of a function may read."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator

from torch import Tensor, nn

from ostinato.graphs.computed_names import computes_globals, strings_in
from ostinato.graphs.places import PLAIN
from ostinato.graphs.reading import names_read, variables_read
from ostinato.graphs.source_lines import is_own

# All that is sure to be no part of something else.
_LONE = (PLAIN, Tensor, nn.Module)
_FINDING_MODULES = frozenset({"modules", "import_module", "__import__"})


def globals_read(function: types.FunctionType) -> set[str]:
    """Return the names of globals that `function` may read, whether or not they are there.

    An attribute that has the name of one is none: `batch.mask` beside a global `mask`.
    """
    wanted = set(variables_read(function.__code__))
    if computes_globals(function.__code__):
        held_by = list(function.__globals__.items())
        wanted |= {name for name, held in held_by if isinstance(held, _LONE)}
        wanted |= names_read(function.__code__)
    return wanted


def modules_found(function: types.FunctionType) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield those that its code imports, and what it may find in `sys.modules`, with their names.

    The latter are its own module, and those that its strings name.
    """
    names = modules_imported(function)
    if names_read(function.__code__) & _FINDING_MODULES:
        names |= {function.__module__, *strings_in(function.__code__)}
    for name in sorted(names):
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            yield name, module


def modules_imported(function: types.FunctionType) -> set[str]:
    """Return the names of the modules that `import` in its code may mean.

    `import a.b` binds `a`; `from a import b` may mean the module `a.b`. Those of installed packages
    import a good deal for themselves: what is asked for is what users write.
    """
    if not is_own(function.__code__.co_filename):
        return set()
    package = function.__globals__.get("__package__")
    return set(_imported(function.__code__, package if isinstance(package, str) else ""))


def imports_to_come(function: types.FunctionType) -> list[str]:
    """Return the modules that its code imports and that nobody has imported yet."""
    return sorted(
        name for name in modules_imported(function) - sys.modules.keys() if not _is_a_part(name)
    )


def _is_a_part(name: str) -> bool:
    """Whether `from a import b` means what `a` holds; not asked of `a`, which might import it."""
    outer, _, part = name.rpartition(".")
    return part in getattr(sys.modules.get(outer), "__dict__", ())


def _imported(code: types.CodeType, package: str) -> Iterator[str]:
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, wanted = instructions[at - 2].argval, instructions[at - 1].argval
            name = instruction.argval
            if isinstance(level, int) and level:
                outer = package.split(".")[: len(package.split(".")) - level + 1]
                name = ".".join([*outer, *([name] if name else [])])
            yield from (name, name.partition(".")[0])
            if isinstance(wanted, tuple):
                yield from (f"{name}.{part}" for part in wanted)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imported(constant, package)
