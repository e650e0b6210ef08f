"""Take a nested value apart into leaves, and put it together again with the same types.

dict, list, tuple, namedtuple, dataclass, transformers' `ModelOutput` and every type registered with
torch's pytree are opened; everything else, None included, is a leaf. torch's own pytree does not
open plain dataclasses, and registering a user's class there would leave a trace in the process;
hence this module. The runner signs arguments and rebuilds results with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Size, Tensor
from torch.nn import Parameter
from torch.utils import _pytree as torch_pytree

from ostinato.graphs.places import same_key

Children = list[tuple[str, object]]
Rebuild = Callable[[Any, Sequence[object]], object]


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The shape of a nested value without its leaves; equal structures hold their leaves alike.

    Attributes:
        kind: Type of the node, None for a leaf.
        context: What besides the children makes the node: keys, field values that are not children.
        names: Path step to each child.
        children: Structures of the children, in order.
    """

    kind: type | None
    context: Any
    names: tuple[str, ...]
    children: tuple[Structure, ...]
    _hash: int = field(init=False, repr=False)
    _kinds: tuple[type, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        # A structure is part of the key that every call looks up; it is hashed once.
        own = (self.kind, self.context, self.names, tuple(c._hash for c in self.children))
        object.__setattr__(self, "_hash", hash(own))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Structure)
            and self._hash == other._hash
            and self.kind is other.kind
            and self.names == other.names
            and same_key(self.context, other.context)
            and self.children == other.children
        )

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types of the nodes and of their keys, outermost first, each once; found out once."""
        if self._kinds is None:
            kinds = dict.fromkeys(self._kinds_inside())
            object.__setattr__(self, "_kinds", tuple(kinds))
        assert self._kinds is not None
        return self._kinds

    def _kinds_inside(self) -> Iterator[type]:
        if self.kind is not None:
            yield self.kind
            yield from _types_in(self.context)
            for child in self.children:
                yield from child.kinds

    @property
    def paths(self) -> tuple[str, ...]:
        """The dotted path of every leaf, in order; a bare leaf has the path ""."""
        return tuple(self._paths(""))

    def _paths(self, prefix: str) -> Iterator[str]:
        if self.kind is None:
            yield prefix
            return
        for name, child in zip(self.names, self.children, strict=True):
            yield from child._paths(f"{prefix}.{name}" if prefix else name)

    def unflatten(self, leaves: Sequence[object]) -> Any:
        """Rebuild the value round `leaves`, which must be as many as `flatten` returned."""
        stream = iter(leaves)
        value = self._build(stream)
        if next(stream, _END) is not _END:
            raise ValueError(f"{len(leaves)} leaves are more than this structure holds")
        return value

    def _build(self, stream: Iterator[object]) -> object:
        if self.kind is None:
            return next(stream)
        parts = [child._build(stream) for child in self.children]
        return _REBUILD.get(self.kind, _rebuild_other)(self, parts)


def _types_in(keys: object) -> Iterator[type]:
    if isinstance(keys, type):
        yield keys
    elif isinstance(keys, tuple | frozenset | list):
        yield type(keys)
        for key in keys:
            yield from _types_in(key)
    else:
        yield type(keys)


_END = object()
SURE_LEAVES = frozenset({Tensor, Parameter, type(None), int, float, bool, str, Size})
"""Types that are leaves for certain."""
LEAF = Structure(None, None, (), ())


def flatten(value: object) -> tuple[list[object], Structure]:
    """Return the leaves of `value`, left to right, and the structure that puts them back.

    Raises:
        RecursionError: The value contains itself.
    """
    leaves: list[object] = []
    return leaves, _open(value, leaves)


def opened(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every object that `flatten` takes apart, outermost first, with its dotted path."""
    is_leaf = value is None or isinstance(value, Tensor | Size)
    found = None if is_leaf else _children(value)
    if found is not None:
        yield path, value
        for name, child in found[1]:
            yield from opened(child, f"{path}.{name}" if path else name)


def reopen(value: object, expected: Structure, leaves: list[object]) -> bool:
    """Append the leaves of `value` if it is nested as `expected`; much cheaper than `flatten`.

    False means "not, or not sure": `leaves` may then hold some, and `flatten` has to be asked.
    """
    kind = expected.kind
    if kind is None:
        leaves.append(value)
        return type(value) in SURE_LEAVES
    if type(value) is not kind:
        return False
    children = expected.children
    if kind is dict:
        if not same_key(tuple(value), expected.context):  # type: ignore[arg-type]
            return False
        parts: Any = value.values()  # type: ignore[attr-defined]
    elif kind is list or kind is tuple:
        if len(value) != len(children):  # type: ignore[arg-type]
            return False
        parts = value
    else:
        return False
    for part, child in zip(parts, children, strict=True):
        if child.kind is None and type(part) in SURE_LEAVES:
            leaves.append(part)
        elif not reopen(part, child, leaves):
            return False
    return True


def _open(value: object, leaves: list[object]) -> Structure:
    # A torch.Size is a tuple to torch's pytree, which puts it together again as one.
    is_leaf = value is None or isinstance(value, Tensor | Size)
    opened = None if is_leaf else _children(value)
    if opened is None:
        leaves.append(value)
        return LEAF
    context, children = opened
    return Structure(
        type(value),
        context,
        tuple(name for name, _ in children),
        tuple(_open(child, leaves) for _, child in children),
    )


def _children(value: Any) -> tuple[Any, Children] | None:
    kind = type(value)
    if kind is dict or kind is OrderedDict:
        items = list(value.items())
        return tuple(key for key, _ in items), [(str(key), item) for key, item in items]
    if kind is list or kind is tuple:
        return None, [(str(i), item) for i, item in enumerate(value)]
    if kind is defaultdict:
        return (
            (value.default_factory, *value.keys()),
            [(str(key), item) for key, item in value.items()],
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return None, list(zip(value._fields, value, strict=True))
    if _is_model_output(value):
        items = list(value.items())
        return tuple(key for key, _ in items), [(str(key), item) for key, item in items]
    if kind in torch_pytree.SUPPORTED_NODES:
        parts, context = torch_pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return _Opaque(context), [(str(i), item) for i, item in enumerate(parts)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = list(_attributes(value))
        return tuple(name for name, _ in items), items
    return None


def _attributes(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the fields, and what `__post_init__` set besides them."""
    fields = [f.name for f in dataclasses.fields(value)]
    for name in dict.fromkeys((*fields, *getattr(value, "__dict__", ()))):
        try:
            yield name, getattr(value, name)
        except AttributeError:  # a slot that was never filled
            continue


def _is_model_output(value: object) -> bool:
    # By name: transformers is optional, and importing it to ask would cost seconds.
    return isinstance(value, OrderedDict) and any(
        base.__name__ == "ModelOutput" and base.__module__.startswith("transformers")
        for base in type(value).__mro__
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Opaque:
    """A pytree context that may not be hashable; compares by value, hashes by type."""

    context: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and same_key(self.context, other.context)

    def __hash__(self) -> int:
        return hash(type(self.context))


def _rebuild_sequence(node: Structure, parts: list[object]) -> object:
    assert node.kind is not None
    return node.kind(parts)


def _rebuild_mapping(node: Structure, parts: list[object]) -> object:
    assert node.kind is not None
    return node.kind(zip(node.context, parts, strict=True))


def _rebuild_defaultdict(node: Structure, parts: list[object]) -> object:
    factory, *keys = node.context
    return defaultdict(factory, zip(keys, parts, strict=True))


def _rebuild_other(node: Structure, parts: list[object]) -> object:
    kind: Any = node.kind
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    if isinstance(node.context, _Opaque):
        return torch_pytree.SUPPORTED_NODES[kind].unflatten_fn(parts, node.context.context)
    values = dict(zip(node.context, parts, strict=True))
    if issubclass(kind, OrderedDict):
        return _rebuild_model_output(kind, values)
    return _rebuild_dataclass(kind, values)


def _rebuild_dataclass(kind: Any, values: dict[str, object]) -> object:
    # Past __init__ and __post_init__, which may refuse, compute or count: a rebuilt value is a
    # value that already existed.
    built = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(built, name, value)
    return built


def _rebuild_model_output(kind: Any, values: dict[str, object]) -> object:
    # Past its constructor too, which takes several times as long as the replay of a small model. An
    # output is both: a mapping of the fields that are set, and an attribute for each field.
    built: Any = OrderedDict.__new__(kind)
    attributes = built.__dict__
    for name in _field_names(kind):
        attributes[name] = None
    attributes.update(values)
    for name, value in values.items():
        OrderedDict.__setitem__(built, name, value)
    return built


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_REBUILD: dict[type, Callable[[Structure, list[object]], object]] = {
    list: _rebuild_sequence,
    tuple: _rebuild_sequence,
    dict: _rebuild_mapping,
    OrderedDict: _rebuild_mapping,
    defaultdict: _rebuild_defaultdict,
}
