"""Frozen dataclasses to JSON and back, by their annotations.

Evidence is saved, mailed and replayed in CI, so what is read back is checked: a value of the wrong
type names its field. Fields that a file lacks keep their defaults, and fields that are not known
are left out, so that evidence of a neighbouring version can still be read.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ostinato.errors import UsageError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


def to_compact_json(value: Any) -> str:
    """Return `value` as JSON: as `to_plain` has it, in a third of the time.

    Evidence is written while the program runs, by a thread that takes the GIL from it.

    Raises:
        ValueError: A number is none that JSON has.
    """
    return _ENCODER.encode(value)


def _one_level(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"evidence holds something of type {type(value).__name__}")
    return {name: getattr(value, name) for name in _names(type(value))}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, default=_one_level
)


def from_plain(kind: type[T], value: Any, where: str = "") -> T:
    """Return an instance of the dataclass `kind` that holds what `value` says.

    Raises:
        UsageError: OST7020, a value is not what its field holds, or a field is missing.
    """
    return _read(kind, value, where or kind.__name__)  # type: ignore[no-any-return]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_fields(kind, value, where)
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        choices = [choice for choice in get_args(kind) if choice is not type(None)]
        return None if value is None else _read(choices[0], value, where)
    if origin is tuple:
        return _read_tuple(get_args(kind), value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        if value not in {member.value for member in kind}:
            raise _wrong(where, f"one of {', '.join(str(m.value) for m in kind)}", value)
        return kind(value)
    return _read_scalar(kind, value, where)


def _read_fields(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object", value)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            inner = f"{where}.{field.name}"
            given[field.name] = _read(_hints(kind)[field.name], value[field.name], inner)
        elif _is_required(field):
            raise _wrong(f"{where}.{field.name}", "a value", None)
    return kind(**given)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _read_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(where, "a list", value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(kinds) != len(value):
        raise _wrong(where, f"a list of {len(kinds)}", value)
    pairs = zip(kinds, value, strict=True)
    return tuple(_read(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise _wrong(where, kind.__name__, value)


def _wrong(where: str, wanted: str, value: Any) -> UsageError:
    seen = repr(value)
    return UsageError(
        f"{where} holds {seen if len(seen) <= 60 else seen[:59] + '…'}, not {wanted}",
        code="OST7020",
        remedy="give the file that `ostinato doctor run --evidence FILE` wrote, unchanged",
    )
