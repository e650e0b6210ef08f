"""What one run called, in order: plain values that patterns are looked for in.

Tensors are known by the memory they look at. Memory has a number, given when it is first seen, so
that two runs of the same code read alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

FLOATS = frozenset({"float32", "bfloat16", "float16"})
"""What the kernels compute in."""


@dataclass(frozen=True, slots=True)
class Value:
    """One window on memory.

    Attributes:
        region: Number of the memory.
        offset: In elements, as are the strides.
        dtype: By its plain name, such as "bfloat16".
    """

    region: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side, in order."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def is_like(self, other: object) -> bool:
        """Whether `other` is a value of the same shape and dtype, both contiguous."""
        return (
            isinstance(other, Value)
            and (self.shape, self.dtype) == (other.shape, other.dtype)
            and self.is_contiguous
            and other.is_contiguous
        )


@dataclass(frozen=True, slots=True)
class Op:
    """One call.

    Attributes:
        name: Such as "aten.mul.Tensor".
        args: Values, plain Python values, and tuples of both.
        kwargs: Name and value of each, in order.
        outs: What it returned, tensors alone.
        reads, writes: Memory that it took, and what of it its schema says it changes.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outs: tuple[Value, ...]
    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def is_view(self) -> bool:
        """Whether it only opens another window on memory that it was given."""
        return (
            bool(self.outs) and not self.writes and all(v.region in self.reads for v in self.outs)
        )

    @property
    def makes(self) -> frozenset[int]:
        """Memory that did not exist before."""
        return frozenset(out.region for out in self.outs) - self.reads


@dataclass(frozen=True)
class Stream:
    """All calls of one run.

    Attributes:
        ops: In order.
        kept: Memory that was made in the run and outlives it.
    """

    ops: tuple[Op, ...]
    kept: frozenset[int]

    @cached_property
    def _makers(self) -> dict[int, int]:
        return {region: index for index, op in enumerate(self.ops) for region in op.makes}

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        users: dict[int, list[int]] = {}
        for index, op in enumerate(self.ops):
            if not op.is_view:
                for region in op.reads:
                    users.setdefault(region, []).append(index)
        return users

    def users(self, value: Value) -> list[int]:
        """Return which calls compute with the memory of `value`."""
        return self._users.get(value.region, [])

    def maker(self, value: object, name: str) -> int | None:
        """Return the call that made exactly `value`, if that is a call named `name`."""
        if not isinstance(value, Value):
            return None
        index = self._makers.get(value.region)
        if index is None or self.ops[index].name != name or self.ops[index].outs != (value,):
            return None
        return index

    def passing(self, value: object, name: str) -> int | None:
        """Return the same, if nobody but one call ever computes with `value`."""
        index = self.maker(value, name)
        if index is None or not isinstance(value, Value):
            return None
        is_kept = value.region in self.kept
        return index if len(self.users(value)) == 1 and not is_kept else None
