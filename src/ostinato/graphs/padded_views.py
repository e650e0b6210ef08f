"""An output that is a view of a bucketed input, handed out as a view of the caller's own tensor.

The recording knows it as a view of the static input, which has the bucket's size and strides of its
own. So the view is described by what it takes of each input dimension, which holds at any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ostinato.graphs.extents import Extent

_STAYS = (0, 0)


@dataclass(frozen=True, slots=True)
class PaddedView:
    """A view of one of the caller's tensors, which the recording has padded.

    Attributes:
        leaf: Index of the caller's tensor.
        static: The view as it was recorded.
        extents: How its dimensions follow the bucketed sizes.
        starts: Where it starts along each dimension of the input.
        taken: For each of its dimensions, the input dimension it runs along and in which steps;
            None for a dimension of one element. Steps of 0 are those of `expand`.
    """

    leaf: int
    static: Tensor
    extents: tuple[Extent, ...]
    starts: tuple[int, ...]
    taken: tuple[tuple[int, int] | None, ...]
    is_ours: bool = False

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> Tensor:
        """Return the view at the size of this call."""
        base = leaves[self.leaf]
        assert isinstance(base, Tensor)
        shape = [extent.at(sizes) for extent in self.extents]
        ends = list(self.starts)
        for along, size in zip(self.taken, shape, strict=True):
            if along is not None:
                ends[along[0]] += along[1] * (size - 1)
        if any(end >= size for end, size in zip(ends, base.shape, strict=True)):
            return self._copy(shape)  # it lies in the padding
        offset = sum(map(int.__mul__, self.starts, base.stride()))
        return base.as_strided(shape, self._strides(base, shape), base.storage_offset() + offset)

    def _strides(self, base: Tensor, shape: Sequence[int]) -> list[int]:
        strides: list[int] = []
        inner = 1  # what torch gives a dimension of one element: the span of those within it
        for along, size in zip(reversed(self.taken), reversed(shape), strict=True):
            strides.append(inner if along is None else base.stride(along[0]) * along[1])
            inner = size * strides[-1] or inner
        return strides[::-1]

    def _copy(self, shape: Sequence[int]) -> Tensor:
        view = self.static
        for dim, size in enumerate(shape):
            view = view.narrow(dim, 0, size)
        return view.clone()


def try_padded_view(
    output: Tensor, static: Tensor, leaf: int, extents: tuple[Extent, ...] | None
) -> PaddedView | None:
    """Return how `output` views `static`, or None if it is no plain choice along dimensions.

    A diagonal, or dimensions merged into one, cannot be told at another size.
    """
    is_plain = output.dtype is static.dtype and not (output.is_conj() or output.is_neg())
    if extents is None or not is_plain or not static.is_contiguous() or not all(static.stride()):
        return None
    offset = int(output.storage_offset() - static.storage_offset())
    starts = []
    for stride in static.stride():
        starts.append(offset // stride)
        offset %= stride
    taken: list[tuple[int, int] | None] = []
    for size, stride in zip(output.shape, output.stride(), strict=True):
        along = None if size == 1 else _dimension_along(static, stride)
        if size > 1 and stride == 0:
            along = _STAYS
        elif size > 1:
            if along is None or along[0] in {each[0] for each in taken if each and each[1]}:
                return None
            if starts[along[0]] + along[1] * (size - 1) >= static.shape[along[0]]:
                return None
        taken.append(along)
    return PaddedView(leaf, output, extents, tuple(starts), tuple(taken))


def _dimension_along(static: Tensor, stride: int) -> tuple[int, int] | None:
    """Return the dimension of `static` that a stride runs along, and in which steps."""
    for dim, (size, step) in enumerate(zip(static.shape, static.stride(), strict=True)):
        if size > 1 and 0 < step <= stride:
            return (dim, stride // step) if stride % step == 0 else None
    return None
