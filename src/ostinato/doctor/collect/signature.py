"""What a recording would be keyed on, roughly, of one call: shapes, dtypes and plain values."""

from __future__ import annotations

from typing import Any

import torch

from ostinato.class_name import class_name

_PLAIN = frozenset({int, float, str, bool, type(None)})


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a call."""
    return tuple(_part(value) for value in (*args, *kwargs.values()))


def _part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype)
    if type(value) in _PLAIN:  # and not what derives from it, which may do anything
        return value
    return class_name(value)


def sizes(key: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of the first tensor in a key; nothing without one."""
    for part in key:
        if isinstance(part, tuple):
            return tuple(part[0])
    return ()


def rows(key: tuple[Any, ...]) -> int:
    """Return how many rows, or where there is one row how many tokens, the call had; 0 unknown."""
    shape = sizes(key)
    return int(shape[1] if len(shape) > 1 and shape[0] == 1 else shape[0]) if shape else 0


def words(key: tuple[Any, ...]) -> str:
    """Return a key as it is shown."""
    parts = []
    for part in key:
        if isinstance(part, tuple):
            parts.append(f"{str(part[1]).removeprefix('torch.')}[{', '.join(map(str, part[0]))}]")
        else:
            parts.append(repr(part))
    return "; ".join(parts)
