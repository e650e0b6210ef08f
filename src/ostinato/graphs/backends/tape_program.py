"""What the tape keeps of one run, before it is planned and turned into code.

A region is a piece of memory, a value is one tensor's window onto a region, a call is one aten call
whose tensors are replaced by references to values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload


class Origin(Enum):
    """Where the memory of a region comes from."""

    OUTSIDE = "outside"  # inputs, weights, caches: the tape reads and writes them where they are
    CONSTANT = "constant"  # a Python value turned into a tensor
    MADE = "made"  # by a call of the run


@dataclass(slots=True)
class Region:
    """Memory that tensors of the run share.

    Attributes:
        nbytes: Its size.
        storage: Keeps the recorded memory alive; None when nothing needs that memory any more.
        maker: Index of the call that made it; None if it comes from outside or is a constant.
        is_pure: Follows from constants alone and was never written: every run makes the same.
        is_kept: Reachable from outside after the run (a result), so that its address must hold.
    """

    origin: Origin
    nbytes: int
    storage: torch.UntypedStorage | None
    maker: int | None = None
    is_pure: bool = False
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor's window onto a region; `offset` is in elements from the start of the region."""

    region: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    is_conj: bool
    is_neg: bool

    @classmethod
    def of(cls, tensor: Tensor, region: int) -> Value:
        """Describe `tensor`, whose memory is `region`."""
        return cls(
            region,
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.is_conj(),
            tensor.is_neg(),
        )

    @property
    def end_bytes(self) -> int:
        """How far the window reaches into its region."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (self.offset + last + 1) * self.dtype.itemsize

    def over(self, storage: torch.UntypedStorage) -> Tensor:
        """Build the tensor on the memory of its region."""
        tensor = torch.empty(0, dtype=self.dtype, device="cpu")
        tensor.set_(storage, self.offset, self.shape, self.stride)
        if self.is_conj:
            tensor = torch._conj(tensor)
        return torch._neg_view(tensor) if self.is_neg else tensor

    def stand_in(self) -> Tensor:
        """Build a tensor of the same look and no memory, for trying calls without running them."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a value in the arguments of a call."""

    value: int


Path = tuple[int, ...]


@dataclass(slots=True)
class Call:
    """One aten call.

    Attributes:
        outs: Where in the returned structure each tensor sits, and the value that it is.
        written: Values of the arguments that the call writes.
        where: The user's line.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[tuple[Path, int]]
    written: list[int]
    where: str | None

    def taken(self) -> list[int]:
        """Return the values among the arguments, in order."""
        return [ref.value for ref in _refs((self.args, tuple(self.kwargs.values())))]


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _refs(item)


@dataclass(slots=True)
class Program:
    """One recorded run."""

    regions: list[Region] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def region_of(self, value: int) -> int:
        """Return the index of the region that a value looks at."""
        return self.values[value].region
