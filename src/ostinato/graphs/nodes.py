"""How each kind of nested value is taken apart, and put together again with the same type.

`tree.py` asks here, node by node. Values are read and written through the base classes, and rebuilt
past their constructors, which may refuse, compute or count: a rebuilt value is one that existed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import types
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils import _pytree as torch_pytree

from ostinato.class_name import class_name
from ostinato.graphs.places import PLAIN, same_key

Children = list[tuple[str, object]]
Rebuild = Callable[[Any, Any, Sequence[object]], object]

_HOLDERS = frozenset({types.SimpleNamespace, argparse.Namespace, UserDict, UserList, ChainMap})
"""Of the standard library, what is nothing but its attributes."""
_MOST_KINDS = 1024
_FEW_ITEMS = 16
_TRIES = 64
_SHUFFLE = random.Random(0)
_NOTHING: Mapping[str, object] = types.MappingProxyType({})


def children_of(value: Any) -> tuple[Any, Children] | None:
    """Return what besides the children makes `value`, and its children; None for a leaf."""
    kind: Any = type(value)
    if kind is dict or kind is OrderedDict:
        return _entries(list(value.items()))
    if kind is list or kind is tuple:
        return None, _numbered(value)
    if kind is defaultdict:
        context, children = _entries(list(value.items()))
        return (value.default_factory, *context), children
    if kind is set:
        return _items_of_set(value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        if getattr(value, "__dict__", None):
            return None  # a subclass may have attributes besides
        return None, list(zip(kind._fields, tuple.__iter__(value), strict=True))
    if _is_model_output(kind):
        return _entries(list(value.items()))
    if kind in torch_pytree.SUPPORTED_NODES:
        parts, context = torch_pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return _Opaque(context), _numbered(parts)
    if is_holder(kind):
        children = list(attributes_of(value).items())
        return tuple(name for name, _ in children), children
    if issubclass(kind, dict | list):
        return _subclass_of_container(kind, value)
    names = _declared(kind)
    if names is not None:
        children = list(_attributes(value, names))
        return tuple(name for name, _ in children), children
    return None


def _entries(items: list[tuple[Any, object]]) -> tuple[tuple[Any, ...], Children]:
    return tuple(key for key, _ in items), [(_step(key), item) for key, item in items]


def _numbered(items: Any) -> Children:
    return [(str(i), item) for i, item in enumerate(items)]


def _step(key: object) -> str:
    """Say a key in a path, also one that cannot say itself."""
    try:
        return str(key)
    except Exception:  # noqa: BLE001 - the user's, of whatever type
        return f"<{class_name(key)}>"


def _items_of_set(value: set[Any]) -> tuple[Any, Children] | None:
    items = _Order(value)
    if not all(map(_is_plain, items)):
        return None
    order = list(items)
    for _ in range(_TRIES if len(items) <= _FEW_ITEMS else 1):
        if tuple(set(order)) == items:
            items.made_of = tuple(order)
            return items, []
        _SHUFFLE.shuffle(order)
    return None


class _Order(tuple[Any, ...]):
    """The items of a set. Code that walks through it sees their order, so that is in the key.

    Attributes:
        made_of: The items in an order in which a new set of them shows the same one.
    """

    made_of: tuple[Any, ...]


def _is_plain(item: object) -> bool:
    if type(item) is tuple or type(item) is frozenset:
        return all(map(_is_plain, item))
    return isinstance(item, PLAIN)


@functools.lru_cache(_MOST_KINDS)
def is_holder(kind: Any) -> bool:
    """Whether objects of a class are nothing but their attributes."""
    return not _HOLDERS.isdisjoint(kind.__mro__) and not _has_slots(kind)


@functools.lru_cache(_MOST_KINDS)
def is_plain_dataclass(kind: Any) -> bool:
    """Whether the attributes of such a dataclass are what stands in its objects' `__dict__`."""
    if not hasattr(kind, "__dataclass_fields__") or issubclass(kind, type | dict | list):
        return False
    if kind.__getattribute__ is not object.__getattribute__ or _has_slots(kind):
        return False
    return not any(
        hasattr(member, "__set__")
        for base in kind.__mro__[:-1]
        for name, member in vars(base).items()
        if name not in ("__dict__", "__weakref__")
    )


def attributes_of(value: Any) -> Mapping[str, object]:
    """Return the attributes that a holder, or a plain dataclass, is taken apart into."""
    held: dict[str, object] = vars(value)
    hidden = hidden_in(value)
    return {k: v for k, v in held.items() if k != hidden} if hidden else held


def hidden_in(value: Any) -> str:
    """Name the attribute that is left out when `value` is taken apart; "" if none is.

    A `BatchEncoding` keeps, beside its tensors, what the tokenizer found: objects made anew for
    each text. Code that asks for them does not find them in the rebuilt one, and fails.
    """
    kind: Any = type(value)
    if not _is_encoding(kind) or vars(value).get("_encodings") is None:
        return ""
    return "_encodings"


@functools.lru_cache(_MOST_KINDS)
def _is_encoding(kind: Any) -> bool:
    # By name, as for a `ModelOutput`.
    return any(
        base.__name__ == "BatchEncoding" and base.__module__.startswith("transformers")
        for base in kind.__mro__
    )


def _has_slots(kind: type) -> bool:
    return any(vars(base).get("__slots__") for base in kind.__mro__)


def _subclass_of_container(kind: type, value: Any) -> tuple[Any, Children] | None:
    """Open a user's dict or list: its entries, and the attributes beside them."""
    if issubclass(kind, OrderedDict | defaultdict) or _has_slots(kind):
        return None
    held = getattr(value, "__dict__", _NOTHING)
    if issubclass(kind, dict):
        keys, children = _entries(list(dict.items(value)))
        if held is value:  # `self.__dict__ = self`: its entries are its attributes
            return (keys, None), children
        return (keys, tuple(held)), [*children, *held.items()]
    return (None, tuple(held)), [*_numbered(list.__iter__(value)), *held.items()]


def _declared(kind: Any) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, or of a class made by attrs; None for other classes."""
    if hasattr(kind, "__dataclass_fields__") and not issubclass(kind, type):
        return _field_names(kind)
    fields = getattr(kind, "__attrs_attrs__", None)
    return None if fields is None else tuple(field.name for field in fields)


def _attributes(value: Any, names: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the fields, and what was set besides them, as in `__post_init__`."""
    for name in dict.fromkeys((*names, *getattr(value, "__dict__", ()))):
        try:
            yield name, getattr(value, name)
        except AttributeError:  # a slot that was never filled
            continue


def _is_model_output(kind: type) -> bool:
    # By name: transformers is optional, and importing it to ask would cost seconds.
    return issubclass(kind, OrderedDict) and any(
        base.__name__ == "ModelOutput" and base.__module__.startswith("transformers")
        for base in kind.__mro__
    )


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@dataclass(frozen=True, slots=True, eq=False)
class _Opaque:
    """A pytree context that may not be hashable; compares by value, hashes by type."""

    context: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and same_key(self.context, other.context)

    def __hash__(self) -> int:
        return hash(type(self.context))


def _rebuild_sequence(kind: Any, context: Any, parts: Sequence[object]) -> object:
    return kind(parts)


def _rebuild_mapping(kind: Any, context: Any, parts: Sequence[object]) -> object:
    return kind(zip(context, parts, strict=True))


def _rebuild_defaultdict(kind: Any, context: Any, parts: Sequence[object]) -> object:
    factory, *keys = context
    return defaultdict(factory, zip(keys, parts, strict=True))


def _rebuild_set(kind: Any, context: Any, parts: Sequence[object]) -> object:
    return set(context.made_of)


def rebuild_other(kind: Any, context: Any, parts: Sequence[object]) -> object:
    """Rebuild a value whose type is not in `REBUILD`."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    if isinstance(context, _Opaque):
        return torch_pytree.SUPPORTED_NODES[kind].unflatten_fn(list(parts), context.context)
    if issubclass(kind, OrderedDict):
        return _rebuild_model_output(kind, dict(zip(context, parts, strict=True)))
    if issubclass(kind, dict | list):
        return _rebuild_container(kind, context, parts)
    return _rebuild_object(kind, dict(zip(context, parts, strict=True)))


def _rebuild_object(kind: Any, values: dict[str, object]) -> object:
    if is_holder(kind):
        base = next(base for base in kind.__mro__ if base in _HOLDERS)
        built = base.__new__(kind)
        vars(built).update(values)
        return built
    built = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(built, name, value)
    return built


def _rebuild_container(kind: Any, context: Any, parts: Sequence[object]) -> object:
    keys, own = context
    entries = parts[: len(parts) - len(own or ())]
    built: Any
    if issubclass(kind, dict):
        built = dict.__new__(kind)
        dict.update(built, zip(keys, entries, strict=True))
    else:
        built = list.__new__(kind)
        list.extend(built, entries)
    if own:
        vars(built).update(zip(own, parts[len(entries) :], strict=True))
    elif own is None:
        built.__dict__ = built
    return built


def _rebuild_model_output(kind: Any, values: dict[str, object]) -> object:
    # Its constructor takes several times as long as the replay of a small model. An output is both:
    # a mapping of the fields that are set, and an attribute for each field.
    built: Any = OrderedDict.__new__(kind)
    attributes = built.__dict__
    for name in _field_names(kind):
        attributes[name] = None
    attributes.update(values)
    for name, value in values.items():
        OrderedDict.__setitem__(built, name, value)
    return built


REBUILD: dict[type, Rebuild] = {
    list: _rebuild_sequence,
    tuple: _rebuild_sequence,
    set: _rebuild_set,
    dict: _rebuild_mapping,
    OrderedDict: _rebuild_mapping,
    defaultdict: _rebuild_defaultdict,
}
"""How values of these types are rebuilt from their context and the children."""
