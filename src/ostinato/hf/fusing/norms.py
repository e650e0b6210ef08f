"""Root-mean-square norms: all round the mean, which stays torch's own.

The mean adds up in an order that only its own kernel knows. What stands before it (the sum with the
residual, the square) becomes one kernel, and what stands behind it another.
"""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.hf.fusing.plan import Kind, Launch, Match, Slot
from ostinato.hf.fusing.stream import FLOATS, Stream, Value

_ADD, _MUL, _TO = "aten.add.Tensor", "aten.mul.Tensor", "aten._to_copy.default"
_POW, _MEAN, _RSQRT = "aten.pow.Tensor_Scalar", "aten.mean.dim", "aten.rsqrt.default"


def norms(stream: Stream) -> Iterator[Match]:
    """Yield every norm in the stream."""
    summed: set[int] = set()
    for index, op in enumerate(stream.ops):
        if op.name != _MUL or op.kwargs:
            continue
        for weight_at in (0, 1):
            match = _norm(stream, index, weight_at, summed)
            if match is not None:
                yield match
                break


def _norm(stream: Stream, last: int, weight_at: int, summed: set[int]) -> Match | None:
    ops = stream.ops
    weight, normed = ops[last].args[weight_at], ops[last].args[1 - weight_at]
    out = ops[last].outs[0]
    if not (isinstance(weight, Value) and isinstance(normed, Value)):
        return None
    fits = weight.shape == normed.shape[-1:] and weight.dtype == normed.dtype
    if not (fits and out.is_like(normed) and weight.is_contiguous and out.dtype in FLOATS):
        return None
    rounding = stream.passing(normed, _TO)
    if rounding is not None and not _changes_dtype_alone(stream, rounding):
        return None
    scaling = stream.passing(normed if rounding is None else ops[rounding].args[0], _MUL)
    if scaling is None or ops[scaling].kwargs:
        return None
    wide, scale = ops[scaling].args
    rooting = stream.passing(scale, _RSQRT)
    adding = None if rooting is None else stream.passing(ops[rooting].args[0], _ADD)
    if rooting is None or adding is None or ops[adding].kwargs:
        return None
    mean, eps = ops[adding].args
    meaning = stream.passing(mean, _MEAN)
    if meaning is None or not isinstance(eps, float) or ops[meaning].kwargs:
        return None
    square, *how = ops[meaning].args
    squaring = stream.passing(square, _POW)
    if how != [(-1,), True] or squaring is None or ops[squaring].args != (wide, 2):
        return None
    if not (isinstance(wide, Value) and wide.dtype == "float32" and wide.is_like(square)):
        return None
    behind = [adding, rooting, scaling, *([] if rounding is None else [rounding]), last]
    before = _Before(stream, wide, squaring, summed)
    launch = Launch(
        "scale",
        tuple(sorted(behind)),
        takes={"x": before.x, "mean": Slot(adding, 0), "weight": Slot(last, weight_at)},
        fills={"out": Slot(last)},
        numbers={"eps": eps},
    )
    square_launch = before.launch()
    return Match(Kind.NORM, (*([] if square_launch is None else [square_launch]), launch))


class _Before:
    """What stands before the mean: perhaps a sum, perhaps a step up to float32, and the square."""

    def __init__(self, stream: Stream, wide: Value, squaring: int, summed: set[int]) -> None:
        self._stream, self._squaring = stream, squaring
        widening = stream.maker(wide, _TO)
        is_own = widening is not None and len(stream.users(wide)) == 2
        if is_own and widening is not None and _changes_dtype_alone(stream, widening):
            self._widening: int | None = widening
            self.x = Slot(widening, 0)
        else:
            self._widening = None
            self.x = Slot(squaring, 0)
        narrow = stream.ops[self.x.op].args[0]
        self._sum = self._find_sum(narrow, summed)
        if self._sum is not None:
            summed.add(self._sum)

    def _find_sum(self, narrow: Value, summed: set[int]) -> int | None:
        index = self._stream.maker(narrow, _ADD)
        if index is None or index in summed or self._stream.ops[index].kwargs:
            return None
        return index if all(map(narrow.is_like, self._stream.ops[index].args)) else None

    def launch(self) -> Launch | None:
        """Return the kernel for all of it; None where that is one call anyway."""
        members = [self._sum, self._widening, self._squaring]
        found = tuple(member for member in members if member is not None)
        if len(found) == 1:
            return None
        if self._sum is None:
            return Launch("square", found, {"x": self.x}, {"squared": Slot(self._squaring)})
        return Launch(
            "square",
            found,
            takes={"x": Slot(self._sum, 0), "added": Slot(self._sum, 1)},
            fills={"total": Slot(self._sum), "squared": Slot(self._squaring)},
        )


def _changes_dtype_alone(stream: Stream, index: int) -> bool:
    op = stream.ops[index]
    given, made = op.args[0], op.outs[0]
    return (
        isinstance(given, Value)
        and {given.dtype, made.dtype} <= FLOATS
        and [name for name, _ in op.kwargs] == ["dtype"]
        and given.shape == made.shape
        and given.is_contiguous
        and made.is_contiguous
    )
