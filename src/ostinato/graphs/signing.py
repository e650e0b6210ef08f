"""Read a call's signature off its arguments: on every call, so every line is host time."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import random
import re
import struct
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.graphs.ambient import default_device
from ostinato.graphs.places import carries_more
from ostinato.graphs.sharing import Shared, repeats
from ostinato.graphs.signature import ObjectSpec, TensorSpec, UnfitSpec, ValueSpec
from ostinato.graphs.tree import LEAF, SURE_LEAVES, Structure, flatten, reopen

__all__ = [
    "LeafSpec", "Opening", "close_call", "default_device", "leaf_spec", "overlaps", "span_bytes",
    "value_spec",
]  # fmt: skip

LeafSpec = TensorSpec | ValueSpec | ObjectSpec | UnfitSpec

# Compared by value: immutable, and equal values behave alike.
_BY_VALUE = (
    str, bytes, int, bool, type(None), torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, Enum, types.GenericAlias, re.Pattern,
)  # fmt: skip
# Of exactly these types two with one `repr` are alike; equal ones need not be: 1.0 and 1.00, or one
# moment in two time zones.
_BY_TEXT = frozenset({
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
    decimal.Decimal, fractions.Fraction,
    pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
})  # fmt: skip

_MOST_FORMS = 4096


class Opening:
    """Takes calls of one callable apart, and remembers how the latest ones were nested.

    Args:
        names: Its positional parameters, for the paths.
        sees_order: Whether it can see the order of its keyword arguments (`**kwargs`). If not,
            calls that differ in it alone are alike.
    """

    def __init__(self, names: Sequence[str], *, sees_order: bool) -> None:
        self._names = tuple(names)
        self._sees_order = sees_order
        self._flat: dict[tuple[int, tuple[str, ...]], Structure] = {}
        self._nested: dict[tuple[int, tuple[str, ...]], Structure] = {}

    def open(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[list[object], Structure]:
        """Flatten a call: leaves of the positional arguments, then of the keyword arguments."""
        if len(kwargs) > 1 and not self._sees_order:
            kwargs = dict(sorted(kwargs.items()))
        leaves = [*args, *kwargs.values()]
        form = (len(args), tuple(kwargs))
        for leaf in leaves:
            if type(leaf) not in SURE_LEAVES:
                return self._open_nested(leaves, form)
        structure = self._flat.get(form)
        if structure is None:
            structure = self._structure(form, (LEAF,) * len(leaves))
            if len(self._flat) < _MOST_FORMS:
                self._flat[form] = structure
        return leaves, structure

    def _open_nested(
        self, parts: list[object], form: tuple[int, tuple[str, ...]]
    ) -> tuple[list[object], Structure]:
        leaves: list[object] = []
        nodes: list[object] = [parts]
        latest = self._nested.get(form)
        if latest is not None and self._reopens(parts, latest, leaves, nodes):
            return leaves, latest
        leaves, nodes = [], [parts]
        children = []
        for part in parts:
            within: list[object] = []
            try:
                inner, child = flatten(part, within)
            except RecursionError:  # it contains itself: as good as an object
                inner, child, within = [part], LEAF, []
            leaves.extend(inner)
            nodes.extend(within)
            children.append(child)
        structure = self._structure(form, tuple(children), repeats(nodes))
        if structure != latest and len(self._nested) < _MOST_FORMS:
            self._nested[form] = structure
        return leaves, structure

    @staticmethod
    def _reopens(
        parts: list[object], latest: Structure, leaves: list[object], nodes: list[object]
    ) -> bool:
        for part, child in zip(parts, latest.children, strict=True):
            if child.kind is None and type(part) in SURE_LEAVES:
                leaves.append(part)
            elif not reopen(part, child, leaves, nodes):
                return False
        # Two nodes are the call, and the one value that is opened.
        return len(nodes) <= 2 or repeats(nodes) == latest.shared

    def _structure(
        self,
        form: tuple[int, tuple[str, ...]],
        children: tuple[Structure, ...],
        shared: Shared = (),
    ) -> Structure:
        count, keys = form
        positional = (*self._names[:count], *map(str, range(len(self._names), count)))
        return Structure(tuple, form, (*positional, *keys), children, shared)


def close_call(
    structure: Structure, leaves: Sequence[object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Rebuild `(args, kwargs)` round other leaves; the inverse of `Opening.open`."""
    values = structure.build_children(leaves)
    count, keys = structure.context
    return tuple(values[:count]), dict(zip(keys, values[count:], strict=True))


def leaf_spec(leaf: object, *, grad: bool) -> LeafSpec:
    """Describe one leaf of a call; with `grad` also whether it requires a gradient."""
    if isinstance(leaf, Tensor):
        what = _special_kind(leaf)
        if what:
            return UnfitSpec(what)
        is_parameter = type(leaf) is Parameter
        return TensorSpec(
            leaf.shape, leaf.stride(), leaf.dtype, leaf.device, grad and leaf.requires_grad,
            is_parameter=is_parameter,
        )  # fmt: skip
    return value_spec(leaf)


def _special_kind(tensor: Tensor) -> str | None:
    """Say what keeps a tensor from being copied into a plain one; None for plain tensors."""
    if type(tensor) is not Tensor and type(tensor) is not Parameter:
        return f"a {type(tensor).__name__}, a subclass of Tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor with the layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_quantized:
        return "a quantised tensor"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "a tensor inside torch.func"
    if tensor.is_conj() or tensor.is_neg():
        return "a tensor conjugated or negated on reading: call resolve_conj() or resolve_neg()"
    if tensor.is_nested:
        return "a nested tensor"
    return None


def value_spec(leaf: object) -> ValueSpec | ObjectSpec | UnfitSpec:
    """Describe a leaf that is no tensor: by value where that is safe, else by identity."""
    if isinstance(leaf, int | float | complex | str | bytes) and carries_more(leaf):
        return ObjectSpec(leaf)
    if isinstance(leaf, float):
        # Bits, not equality: 0.0 and -0.0 compute differently, and NaN equals itself here.
        return ValueSpec(type(leaf), leaf if leaf and leaf == leaf else struct.pack("d", leaf))
    if isinstance(leaf, type):
        # A metaclass may call two classes equal that are not.
        return ValueSpec(type(leaf), leaf) if _compares_by_identity(leaf) else ObjectSpec(leaf)
    if isinstance(leaf, _BY_VALUE):
        return ValueSpec(type(leaf), leaf)
    if isinstance(leaf, range):  # equal ones have the same items, not the same bounds
        return ValueSpec(range, (leaf.start, leaf.stop, leaf.step))
    if isinstance(leaf, complex | np.generic):
        return ValueSpec(type(leaf), repr(leaf))
    if isinstance(leaf, slice):
        return _parts_spec(slice, (leaf.start, leaf.stop, leaf.step), leaf)
    if type(leaf) is frozenset:  # a subclass may have attributes besides
        return _parts_spec(frozenset, leaf, leaf)
    if type(leaf) in _BY_TEXT:
        zone = getattr(leaf, "tzinfo", None)
        is_told = zone is None or type(zone) is datetime.timezone
        return ValueSpec(type(leaf), repr(leaf)) if is_told else ObjectSpec(leaf)
    if isinstance(leaf, Iterator):
        return UnfitSpec(f"a {type(leaf).__name__}, which a run would use up")
    if isinstance(leaf, random.Random) or str(type(leaf).__module__).startswith("numpy"):
        return UnfitSpec(f"a {_full_name(type(leaf))}, whose contents a recording would freeze")
    return ObjectSpec(leaf)


def _compares_by_identity(kind: type) -> bool:
    return type(kind).__eq__ is type.__eq__ and type(kind).__hash__ is type.__hash__


def _parts_spec(kind: Any, parts: Any, leaf: object) -> ValueSpec | ObjectSpec:
    specs = [value_spec(part) for part in parts]
    if all(isinstance(spec, ValueSpec) for spec in specs):
        return ValueSpec(kind, frozenset(specs) if kind is frozenset else tuple(specs))
    return ObjectSpec(leaf)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def overlaps(leaves: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Return groups of leaf indices whose tensors share bytes, with their relative offsets.

    Each group is `(leaf, byte offset, leaf, byte offset, ...)` relative to its first byte, so that
    equal groups share memory in the same way. The same tensor given twice is such a group.
    """
    spans = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            start = leaf.data_ptr()
            if start:
                spans.append((start, start + span_bytes(leaf), index))
    if len(spans) < 2:
        return ()
    spans.sort()
    groups: list[list[tuple[int, int, int]]] = [[spans[0]]]
    end = spans[0][1]
    for span in spans[1:]:
        if span[0] < end:
            groups[-1].append(span)
        else:
            groups.append([span])
        end = max(end, span[1])
    return tuple(
        tuple(number for start, _, index in group for number in (index, start - group[0][0]))
        for group in groups
        if len(group) > 1
    )


def span_bytes(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last, gaps included."""
    if tensor.is_contiguous():
        return tensor.nbytes
    if tensor.numel() == 0:
        return 0
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()
