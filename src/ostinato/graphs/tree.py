"""Take a nested value apart into leaves, and put it together again with the same types.

dict, list, tuple, namedtuple, dataclass, transformers' `ModelOutput` and `BatchEncoding`, simple
namespaces, sets of plain values and every type registered with torch's pytree are opened, as
`nodes.py` says; everything else, None included, is a leaf. torch's own pytree does not open plain
dataclasses, and registering a user's class there would leave a trace in the process; hence this
module. The runner signs arguments and rebuilds results with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Size, Tensor
from torch.nn import Module, Parameter

from ostinato.graphs.nodes import (
    REBUILD,
    attributes_of,
    children_of,
    is_holder,
    is_plain_dataclass,
    rebuild_other,
)
from ostinato.graphs.places import same_key
from ostinato.graphs.sharing import Shared, repeats


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The shape of a nested value without its leaves; equal structures hold their leaves alike.

    Attributes:
        kind: Type of the node, None for a leaf.
        context: What besides the children makes the node: keys, field values that are not children.
        names: Path step to each child.
        children: Structures of the children, in order.
        shared: Which nodes are one object, this one being number 0; told at the root alone, and
            only where that was asked for.
    """

    kind: type | None
    context: Any
    names: tuple[str, ...]
    children: tuple[Structure, ...]
    shared: Shared = ()
    _hash: int = field(init=False, repr=False)
    _kinds: tuple[type, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        # A structure is part of the key that every call looks up; it is hashed once.
        inner = tuple(c._hash for c in self.children)
        own = (self.kind, self.context, self.names, inner, self.shared)
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
            and self.shared == other.shared
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
        value = self._rebuild(stream, [], dict(self.shared)) if self.shared else self._build(stream)
        if next(stream, _END) is not _END:
            raise ValueError(f"{len(leaves)} leaves are more than this structure holds")
        return value

    def _build(self, stream: Iterator[object]) -> object:
        if self.kind is None:
            return next(stream)
        return self._built_of([child._build(stream) for child in self.children])

    def build_children(self, leaves: Sequence[object]) -> list[object]:
        """Rebuild what stands in this node round `leaves`, one by one."""
        stream = iter(leaves)
        if not self.shared:
            return [child._build(stream) for child in self.children]
        built: list[object] = [self]
        same = dict(self.shared)
        return [child._rebuild(stream, built, same) for child in self.children]

    def _rebuild(
        self, stream: Iterator[object], built: list[object], same: Mapping[int, int]
    ) -> object:
        """Rebuild a node, or take the earlier one that it is; its leaves are passed by then."""
        if self.kind is None:
            return next(stream)
        number = len(built)
        built.append(None)
        parts = [child._rebuild(stream, built, same) for child in self.children]
        built[number] = built[same[number]] if number in same else self._built_of(parts)
        return built[number]

    def _built_of(self, parts: list[object]) -> object:
        assert self.kind is not None
        return REBUILD.get(self.kind, rebuild_other)(self.kind, self.context, parts)


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
# torch's pytree opens a Size as a tuple, and puts it together again as one. A module may be a
# dataclass; it is known by its identity, and its weights are watched.
_NEVER_OPENED = (Tensor, Size, Module)
SURE_LEAVES = frozenset({Tensor, Parameter, type(None), int, float, bool, str, Size})
"""Types that are leaves for certain."""
LEAF = Structure(None, None, (), ())


def flatten(value: object, nodes: list[object] | None = None) -> tuple[list[object], Structure]:
    """Return the leaves of `value`, left to right, and the structure that puts them back.

    Args:
        nodes: Is given every value that is taken apart, outermost first.

    Raises:
        RecursionError: The value contains itself.
    """
    leaves: list[object] = []
    return leaves, _open(value, leaves, [] if nodes is None else nodes)


def flatten_as_shared(value: object) -> tuple[list[object], Structure]:
    """Do the same; what is one object in two places of `value` is one in the rebuilt one, too."""
    nodes: list[object] = []
    leaves, structure = flatten(value, nodes)
    return leaves, replace(structure, shared=repeats(nodes))


def opened(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every object that `flatten` takes apart, outermost first, with its dotted path."""
    found = None if _is_leaf(value) else children_of(value)
    if found is not None:
        yield path, value
        for name, child in found[1]:
            yield from opened(child, f"{path}.{name}" if path else name)


def reopen(value: object, expected: Structure, leaves: list[object], nodes: list[object]) -> bool:
    """Append the leaves of `value` if it is nested as `expected`; much cheaper than `flatten`.

    What is taken apart is appended to `nodes`. False means "not, or not sure": the lists may then
    hold some, and `flatten` has to be asked.
    """
    kind: Any = expected.kind
    if kind is None:
        leaves.append(value)
        return type(value) in SURE_LEAVES
    if type(value) is not kind:
        return False
    nodes.append(value)
    children = expected.children
    if kind is dict:
        if not same_key(tuple(value), expected.context):  # type: ignore[arg-type]
            return False
        parts: Any = value.values()  # type: ignore[attr-defined]
    elif kind is list or kind is tuple:
        if len(value) != len(children):  # type: ignore[arg-type]
            return False
        parts = value
    elif kind is set:
        return same_key(tuple(value), tuple(expected.context))  # type: ignore[arg-type]
    elif is_holder(kind) or is_plain_dataclass(kind):  # type: ignore[arg-type]  # a class hashes
        held = attributes_of(value)
        if not same_key(tuple(held), expected.context):
            return False
        parts = held.values()
    else:
        return False
    for part, child in zip(parts, children, strict=True):
        if child.kind is None and type(part) in SURE_LEAVES:
            leaves.append(part)
        elif not reopen(part, child, leaves, nodes):
            return False
    return True


def _is_leaf(value: object) -> bool:
    # By its type: a `__class__` may be a property that raises.
    return value is None or issubclass(type(value), _NEVER_OPENED)


def _open(value: object, leaves: list[object], nodes: list[object]) -> Structure:
    opened = None if _is_leaf(value) else children_of(value)
    if opened is None:
        leaves.append(value)
        return LEAF
    nodes.append(value)
    context, children = opened
    return Structure(
        type(value),
        context,
        tuple(name for name, _ in children),
        tuple(_open(child, leaves, nodes) for _, child in children),
    )
