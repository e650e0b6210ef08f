"""Which argument raised when a call was looked at: by its `__class__`, `__hash__` or `__repr__`.

`player.py` asks after an exception on its path. What no argument raises again is none of theirs:
our own defect, or what a signal handler raised while we looked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.class_name import class_name
from ostinato.graphs.fitting import objects_in
from ostinato.graphs.given_classes import classes_in
from ostinato.graphs.signing import leaf_spec
from ostinato.graphs.tree import LEAF, Structure, flatten


def unreadable_argument(
    names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]
) -> str | None:
    """Say which argument raises when it is looked at; None if none does.

    Args:
        names: Of the positional parameters.
    """
    positional = (*names[: len(args)], *map(str, range(len(names), len(args))))
    for name, value in (*zip(positional, args, strict=True), *kwargs.items()):
        try:
            _look_at(value)
        except Exception as error:  # noqa: BLE001 - the user's, of whatever type
            told = f"raises {class_name(error)} when it is looked into"
            return f"{name}, a {class_name(value)}, {told}"
    return None


def _look_at(value: object) -> None:
    """Do with one argument what is done with all of them before a replay."""
    structure: Structure
    try:
        leaves, structure = flatten(value)
    except RecursionError:
        leaves, structure = [value], LEAF
    objects_in(leaves)
    classes_in(leaves, structure)
    hash((structure, *(leaf_spec(leaf, grad=True) for leaf in leaves)))
