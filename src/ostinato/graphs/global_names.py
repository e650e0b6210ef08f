"""Which globals of its file, and which other files, the code of a function may read."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

from torch import Tensor, nn

from ostinato.graphs.computed_names import computes_globals, strings_in
from ostinato.graphs.places import PLAIN
from ostinato.graphs.reading import names_read, variables_read

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


def modules_found(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """Yield what it may find in `sys.modules`: its own module, and those that its strings name."""
    if names_read(function.__code__) & _FINDING_MODULES:
        for name in (function.__module__, *strings_in(function.__code__)):
            module = sys.modules.get(name)
            if isinstance(module, types.ModuleType):
                yield module
