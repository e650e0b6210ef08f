"""What a type annotation says of a value."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ostinato.doctor.lint.torch_names import PYTHON_TYPES, TENSOR_TYPES, words
from ostinato.doctor.lint.values import (
    ARRAY,
    PYTHON,
    TENSOR,
    UNKNOWN,
    Kind,
    Trait,
    Value,
    each,
    instance,
)

# What a dotted name in an annotation stands for: `torch.Tensor` for an imported `Tensor`.
Names = Callable[[ast.expr], "str | None"]

_CONTAINERS = words(
    "list List Sequence Iterable Iterator Collection set Set frozenset deque Generator "
    "AsyncIterator AsyncIterable Deque FrozenSet MutableSequence"
)
_MAPPINGS = words("dict Dict Mapping OrderedDict MutableMapping defaultdict")
_WRAPPERS = words("Optional Annotated Final ClassVar Required NotRequired InitVar")
_SHAPED = words("Float Float32 Float16 Int Int64 Integer Bool Num Shaped Real Complex")
_LOST = words("Any object Callable TypeVar Union Self Literal")


def value_of(node: ast.expr | None, names: Names) -> Value:
    """Return what the annotation says; UNKNOWN where it says too little."""
    if node is None:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return _constant(node, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([node.left, node.right], names)
    if isinstance(node, ast.Subscript):
        return _subscript(node, names)
    dotted = names(node)
    return UNKNOWN if dotted is None else _plain(dotted)


def _constant(node: ast.Constant, names: Names) -> Value:
    if node.value is None:
        return PYTHON
    if isinstance(node.value, str):
        try:
            return value_of(ast.parse(node.value, mode="eval").body, names)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return UNKNOWN
    return UNKNOWN


def _plain(dotted: str) -> Value:
    if dotted in TENSOR_TYPES:
        is_bool = dotted == "torch.BoolTensor"
        return Value(Kind.TENSOR, None, int(Trait.BOOL)) if is_bool else TENSOR
    last = dotted.rpartition(".")[2]
    if dotted.removeprefix("builtins.") in PYTHON_TYPES or last in ("Path", "PathLike"):
        return PYTHON
    if dotted.startswith(("numpy.", "np.")):
        return ARRAY
    if last in _CONTAINERS or last in _MAPPINGS or last in ("tuple", "Tuple") or last in _LOST:
        return UNKNOWN
    if dotted.startswith("builtins."):
        return UNKNOWN
    return instance(dotted)


def _subscript(node: ast.Subscript, names: Names) -> Value:
    dotted = names(node.value) or ""
    last = dotted.rpartition(".")[2]
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if last in _WRAPPERS:
        return value_of(inside[0], names)
    if last in _SHAPED:  # jaxtyping: Float[Tensor, "batch dim"]
        return value_of(inside[0], names)
    if last == "Union":
        return _union(inside, names)
    if last in ("tuple", "Tuple"):
        if len(inside) == 2 and isinstance(inside[1], ast.Constant) and inside[1].value is ...:
            return each(value_of(inside[0], names))
        return Value(Kind.ITEMS, tuple(value_of(part, names) for part in inside))
    if last in _CONTAINERS:
        return each(value_of(inside[0], names))
    if last in _MAPPINGS:
        return each(value_of(inside[-1], names)).with_traits(Trait.MAPPING)
    if last == "Literal":
        return PYTHON
    if last in ("ndarray", "NDArray"):
        return ARRAY
    return UNKNOWN


def _union(parts: list[ast.expr], names: Names) -> Value:
    """Return what all members but None agree on: `int | Tensor` is neither."""
    members = [part for part in parts if not _is_none(part)]
    values = [value_of(part, names) for part in members]
    if not values:
        return PYTHON
    first = values[0]
    for other in values[1:]:
        if {first.kind, other.kind} == {Kind.TENSOR, Kind.UNKNOWN}:
            return UNKNOWN
        if first.kind is not other.kind:
            return UNKNOWN
    return first


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
