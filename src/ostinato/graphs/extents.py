"""Which dimensions of the outputs follow the size of a bucketed input.

A call of 50 tokens that ran on the recording for 64 has outputs of 64 somewhere, to be cut back to
50. Equal numbers prove nothing (a hidden size may be 64 as well), so the function is run on fake
tensors at several sizes and every output dimension is explained as a fixed number plus a multiple
of each size. What cannot be explained so is refused with a reason. The runner calls this once for
a kind of call, before it records the first of its buckets.

An extent says how long the real part is, not where it lies: `cat([x, x])` is twice as long as x,
yet with padding its real part is in two pieces. Only comparing values finds that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.graphs.fake_run import run_on_fakes
from ostinato.graphs.interrupts import run_interruptibly
from ostinato.graphs.python_state import remember
from ostinato.graphs.size_branches import Calls, CallSet, branch
from ostinato.graphs.tree import Structure, flatten, flatten_as_shared

_TRIALS_PER_AXIS = 9
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device)

Sizes = tuple[int, ...]
"""One real size per axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Input dimensions that vary together.

    Attributes:
        leaves: (leaf index, dimension) in the order of `flatten((args, kwargs))`.
        size: Their size in this call.
        buckets: The recorded sizes, which bound the sizes to try; empty means unknown.
    """

    leaves: tuple[tuple[int, int], ...]
    size: int
    buckets: tuple[int, ...] = ()

    @property
    def serves_one(self) -> bool:
        """Whether a call of size 1 would share the bucket of this call."""
        return not self.buckets or self.size <= self.buckets[0]


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of one output dimension: `constant` plus `per_axis[k]` times the size of axis k."""

    constant: int
    per_axis: tuple[int, ...]

    def at(self, sizes: Sequence[int]) -> int:
        """Return the size of the dimension when the axes have these sizes."""
        return self.constant + sum(
            times * size for times, size in zip(self.per_axis, sizes, strict=True)
        )

    @property
    def follows(self) -> bool:
        """Whether the dimension depends on any size at all."""
        return any(self.per_axis)


Extents = list[tuple[Extent, ...] | None]
"""Per output leaf, one extent per dimension; None for a leaf that is no tensor."""


class Undetermined(Exception):
    """How the outputs follow the inputs' sizes could not be found out.

    Attributes:
        reason: One plain sentence.
        op: The op at which a run on fake tensors stopped, such as "aten.nonzero.default".
        ran: Whether the function ran at all: then real runs would show nothing better. False means
            that it cannot run on fake tensors, and `observed_extents` may know more.
    """

    def __init__(self, reason: str, *, op: str | None = None, ran: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.op = op
        self.ran = ran


class BranchesOnSize(Undetermined):
    """The function computes otherwise at another size of the same bucket."""


def output_extents(
    fn: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    axes: Sequence[Axis],
) -> Extents:
    """Find how every output dimension of `fn(*args, **kwargs)` follows the sizes of `axes`.

    `fn` runs on fake tensors under the caller's grad mode, inference mode and autocast. Nothing
    remains of these runs: not in tensors, attributes, caches, closures or random generators.

    Capture:
        Unsafe, and never needed there. Launches nothing on the device.

    Raises:
        Undetermined: `fn` needs real data or other sizes than it was tried at, returns a plain
            value that follows a size, or a dimension that is not a fixed number plus multiples.
    """
    return _explain(_several_sizes(_attempts(fn, args, kwargs, axes), axes))


def extents_and_one(
    fn: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    axes: Sequence[Axis],
) -> tuple[Extents, str]:
    """Do the same, and say how calls of size 1 differ from the rule; "" if they do not.

    A size of 1 is a kind of its own: `squeeze()` takes the dimension away, and ops broadcast it.
    """
    attempt = _attempts(fn, args, kwargs, axes)
    seen = _several_sizes(attempt, axes)
    extents = _explain(seen)
    found = branch([axis.buckets for axis in axes], [(run.sizes, run.calls) for run in seen])
    if found:
        raise BranchesOnSize(found)
    for sizes in _sizes_with_one(axes):
        try:
            seen.append(attempt(sizes))
            if _explain(seen) != extents:
                return extents, f"its result at size 1 is of another shape than at {seen[0].at}"
        except Undetermined as undetermined:
            return extents, undetermined.reason
    return extents, ""


def _sizes_with_one(axes: Sequence[Axis]) -> list[Sizes]:
    """The calls to try: each axis at 1 alone, then all of them. Only a first bucket serves a 1."""
    real = tuple(axis.size for axis in axes)
    may_be_one = [k for k, axis in enumerate(axes) if axis.serves_one and axis.size > 1]
    alone = [(*real[:k], 1, *real[k + 1 :]) for k in may_be_one]
    together = tuple(1 if k in may_be_one else size for k, size in enumerate(real))
    return [*alone, together] if len(alone) > 1 else alone


def _attempts(
    fn: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    axes: Sequence[Axis],
) -> Callable[[Sizes], _Seen]:
    """Return a function that runs `fn` on fake tensors at given sizes."""
    leaves, structure = flatten_as_shared((tuple(args), dict(kwargs)))
    put_back = remember(fn, args, kwargs)

    def attempt(sizes: Sizes) -> _Seen:
        resized: dict[int, dict[int, int]] = {}
        for axis, size in zip(axes, sizes, strict=True):
            for leaf, dim in axis.leaves if size != axis.size else ():
                resized.setdefault(leaf, {})[dim] = size
        calls = CallSet()

        def watched(*args: object, **kwargs: object) -> object:
            with calls:
                return run_interruptibly(fn, args, kwargs)

        try:
            result = run_on_fakes(watched, leaves, structure, resized)
            return _Seen.of(sizes, result, frozenset(calls.calls))
        except Exception as error:
            raise _undetermined(error, sizes, len(axes)) from error
        finally:
            put_back()

    return attempt


def _several_sizes(attempt: Callable[[Sizes], _Seen], axes: Sequence[Axis]) -> list[_Seen]:
    real = tuple(axis.size for axis in axes)
    seen = [attempt(real)]
    for number, axis in enumerate(axes):
        seen += _attempts_on_one_axis(attempt, real, number, list(_sizes_to_try(axis)))
    if len(axes) > 1:
        # All at once: a product of two sizes looks like a multiple of each.
        everywhere = (next(_sizes_to_try(axis), axis.size) for axis in axes)
        seen.append(attempt(tuple(everywhere)))
    return seen


def observed_extents(
    sizes_a: Sequence[int],
    result_a: object,
    sizes_b: Sequence[int],
    result_b: object,
    *more: tuple[Sequence[int], object],
) -> Extents:
    """Do the same from real runs, for a function that cannot run on fake tensors.

    Two runs fit any straight line: only a third one (in `more`) can show that it is not one. Every
    axis needs a run that differs from the first in that axis alone.

    Raises:
        Undetermined: As for `output_extents`, or an axis had the same size in all runs.
    """
    runs = ((sizes_a, result_a), (sizes_b, result_b), *more)
    seen = [_Seen.of(tuple(sizes), result) for sizes, result in runs]
    for axis in range(len(sizes_a)):
        if _first_step_along(axis, seen) is None:
            raise Undetermined(f"no two runs differ in the size of axis {axis} alone")
    return _explain(seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one run returned: per leaf a shape, or what else there is to compare."""

    sizes: Sizes
    structure: Structure
    shapes: tuple[Sizes | None, ...]
    others: tuple[str | None, ...]
    calls: Calls

    @classmethod
    def of(cls, sizes: Sizes, result: object, calls: Calls = frozenset()) -> _Seen:
        leaves, structure = flatten(result)
        shapes = tuple(tuple(x.shape) if isinstance(x, Tensor) else None for x in leaves)
        return cls(sizes, structure, shapes, tuple(map(_comparable, leaves)), calls)

    @property
    def at(self) -> str:
        """The sizes in words."""
        return str(self.sizes[0]) if len(self.sizes) == 1 else str(self.sizes)


def _comparable(leaf: object) -> str | None:
    if isinstance(leaf, Tensor):
        return None
    kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    return repr(leaf) if isinstance(leaf, _PLAIN) else kind


def _sizes_to_try(axis: Axis) -> Iterator[int]:
    """Other sizes of an axis: its bucket first, then neighbours and the ends of what is allowed.

    Not 1 if there is a choice: ops broadcast it. A neighbour shows what rounds (`size // 2`), a far
    size what rounds coarsely, and the smallest what is cut off (`x[:6]`): one rule serves every
    bucket, so it must hold from the smallest size to the largest.
    """
    size, buckets = axis.size, axis.buckets
    largest = buckets[-1] if buckets else 2 * size + 37
    own = next((bucket for bucket in buckets if bucket >= size), size)
    middle = (size + own) // 2
    wanted = [
        own,
        size + 1,
        largest,
        size - 1,
        2,
        3,
        own - 1,
        largest - 1,
        middle,
        *buckets,
        size + 2,
    ]
    allowed = [other for other in dict.fromkeys(wanted) if other != size and 0 < other <= largest]
    yield from [other for other in allowed if other > 1] or allowed


def _attempts_on_one_axis(
    attempt: Callable[[Sizes], _Seen], real: Sizes, number: int, candidates: list[int]
) -> list[_Seen]:
    """Run at up to nine other sizes of one axis; some may be sizes that the function refuses."""
    seen: list[_Seen] = []
    refused: list[Undetermined] = []
    for size in candidates:
        try:
            seen.append(attempt((*real[:number], size, *real[number + 1 :])))
        except Undetermined as error:
            refused.append(error)
        if len(seen) == _TRIALS_PER_AXIS:
            break
    if refused and len(seen) < min(2, len(candidates)):
        raise refused[0]
    return seen


def _explain(seen: list[_Seen]) -> Extents:
    first = seen[0]
    for other in seen[1:]:
        _check_same_kind(first, other)
    return [
        None
        if shape is None
        else tuple(
            _extent(seen, leaf, dim, first.structure.paths[leaf]) for dim in range(len(shape))
        )
        for leaf, shape in enumerate(first.shapes)
    ]


def _check_same_kind(first: _Seen, other: _Seen) -> None:
    where = f"at size {first.at} and at size {other.at}"
    if first.structure != other.structure:
        raise Undetermined(
            f"its result has {len(first.shapes)} parts at size {first.at} and {len(other.shapes)}, "
            f"or other names, at size {other.at}"
        )
    for path, mine, theirs in zip(first.structure.paths, first.others, other.others, strict=True):
        if mine != theirs:
            raise Undetermined(
                f"{_named(path)} is {mine or 'a tensor'} and {theirs or 'a tensor'} {where}; "
                f"a recording would freeze it"
            )
    for path, a, b in zip(first.structure.paths, first.shapes, other.shapes, strict=True):
        if a is not None and b is not None and len(a) != len(b):
            raise Undetermined(f"{_named(path)} has {len(a)} and {len(b)} dimensions {where}")


def _extent(seen: list[_Seen], leaf: int, dim: int, path: str) -> Extent:
    first = seen[0]

    def measured(run: _Seen) -> int:
        shape = run.shapes[leaf]
        assert shape is not None
        return shape[dim]

    per_axis = []
    for axis, size in enumerate(first.sizes):
        step = _first_step_along(axis, seen)
        grown = 0 if step is None else measured(step) - measured(first)
        # An uneven quotient is found out below, like every other misfit.
        per_axis.append(0 if step is None else grown // (step.sizes[axis] - size))
    shares = sum(times * size for times, size in zip(per_axis, first.sizes, strict=True))
    extent = Extent(measured(first) - shares, tuple(per_axis))
    if any(extent.at(run.sizes) != measured(run) for run in seen):
        raise Undetermined(
            f"dimension {dim} of {_named(path)} is {', '.join(str(measured(r)) for r in seen)} at "
            f"sizes {', '.join(r.at for r in seen)}: not a fixed number plus a multiple of the size"
        )
    return extent


def _first_step_along(axis: int, seen: list[_Seen]) -> _Seen | None:
    """The first run that differs from run 0 in the size of this axis alone."""
    first = seen[0].sizes
    for run in seen[1:]:
        if [k for k, size in enumerate(run.sizes) if size != first[k]] == [axis]:
            return run
    return None


def _named(path: str) -> str:
    return f"output {path!r}" if path else "the output"


def _undetermined(error: Exception, sizes: Sizes, axes: int) -> Undetermined:
    op = getattr(error, "func", None)
    at = str(sizes[0]) if len(sizes) == 1 else str(sizes)
    first_line = (str(error).strip() or "no message").splitlines()[0]
    cause = f"{op} needs real data" if op is not None else f"{type(error).__name__}: {first_line}"
    hint = "; arguments whose sizes must agree need the same bucket sizes" if axes > 1 else ""
    return Undetermined(
        f"it cannot run on fake tensors at size {at} ({cause}){hint}",
        op=None if op is None else str(op),
        ran=False,
    )
