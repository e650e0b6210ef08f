"""The user's classes that a call brings along: of what it gives, of keys, and those given itself.

A signature compares what objects hold. What their methods read, and what lies in the class, has to
be watched: `watches.py` asks here, on every call that is not recognised at a glance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ostinato.graphs.libraries import is_library
from ostinato.graphs.tree import SURE_LEAVES, Structure


def classes_in(leaves: Sequence[object], structure: Structure) -> tuple[type, ...]:
    """Return the user's classes among the nodes, the keys and the leaves of a call, each once."""
    found = structure.kinds
    for leaf in leaves:
        if type(leaf) not in SURE_LEAVES and not isinstance(leaf, Tensor):
            found = (*found, *_classes_of(leaf))
    return tuple(dict.fromkeys(kind for kind in found if _is_users(kind))) if found else ()


def _classes_of(value: object) -> Iterator[type]:
    if isinstance(value, type):
        yield value
        return
    yield type(value)
    if isinstance(value, tuple | frozenset):
        for each in value:
            yield from _classes_of(each)


def _is_users(kind: type) -> bool:
    return kind.__module__ != "builtins" and not is_library(kind.__module__)
