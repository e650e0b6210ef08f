"""Which recorded size serves a call.

A recording replays one fixed shape. A prompt of 50 tokens therefore runs on the recording made for
64, and 14 positions are padding. This module picks the 64 and says what the padding holds.

It is arithmetic only (no torch, no device), so its tests need no GPU. `padding.py` writes the
padding, `extents.py` finds which outputs to cut back, and the runner calls `fit` on every call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan
from numbers import Integral, Real
from operator import index
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from ostinato.errors import UsageError, WrongTypeError
from ostinato.graphs import learning

Policy = Literal["zero", "repeat-last", "keep"]
Fill = float | int | bool | Policy

POLICIES: Final = ("zero", "repeat-last", "keep")
_LISTED_IN_REPR: Final = 12


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Buckets:
    """The sizes of one dimension for which a recording may exist.

    Attributes:
        dim: The dimension that varies; negative counts from the end.
        sizes: Recorded sizes, strictly ascending, each at least 1.
        fill: What padding holds: a number, "zero", "repeat-last" (the last real slice again), or
            "keep" (whatever was there: only for inputs whose padding is never read).
        cut: Output path to the output dimension that is cut back to the real size; "" is a lone
            output. None means: find out by running the function on fake tensors.

    Raises:
        UsageError: OST1002, `sizes` is empty, not ascending, or not positive; OST1004, `fill` is
            no number and no policy; OST1005, `dim` is no whole number; OST1006, `cut` does not
            map paths to dimensions. A value of the wrong type is a WrongTypeError.
    """

    dim: int
    sizes: tuple[int, ...]
    fill: Fill
    cut: Mapping[str, int] | None = field(hash=False)

    def __init__(
        self,
        dim: int,
        sizes: Sequence[int],
        fill: Fill = 0,
        cut: Mapping[str, int] | None = None,
    ) -> None:
        # Frozen: this is the one place that sets attributes.
        object.__setattr__(self, "dim", _whole_dim(dim))
        object.__setattr__(self, "sizes", _ascending_sizes(sizes))
        object.__setattr__(self, "fill", _known_fill(fill))
        object.__setattr__(self, "cut", _read_only_cut(cut))

    @classmethod
    def powers_of_two(cls, largest: int, *, dim: int, smallest: int = 1, fill: Fill = 0) -> Self:
        """Return sizes that double from `smallest`, and `largest` itself.

        At most half of what runs is padding, on about log2(largest / smallest) recordings.
        """
        sizes = list(_ascending_sizes((smallest,)))
        (largest,) = _ascending_sizes((largest,))
        while sizes[-1] * 2 < largest:
            sizes.append(sizes[-1] * 2)
        return cls(dim, sizes if sizes == [largest] else [*sizes, largest], fill)

    @classmethod
    def learn(cls, trace: Iterable[int], max_graphs: int, *, dim: int = 0, fill: Fill = 0) -> Self:
        """Return the at most `max_graphs` sizes that pad the calls of `trace` least.

        The trace is the sizes of calls that happened, in any order; 0 is skipped.

        Raises:
            UsageError: OST1007, the trace holds no call or a negative size, or `max_graphs` is
                below 1.
        """
        return cls(dim, learning.best_sizes(trace, max_graphs), fill)

    @classmethod
    def from_dict(cls, saved: Mapping[str, object]) -> Self:
        """Return the buckets that `to_dict` saved.

        Raises:
            UsageError: OST1002, an entry is missing or unknown, or one of its values is wrong.
        """
        known = {"dim", "sizes", "fill", "cut"}
        is_mapping = isinstance(saved, Mapping)
        if not is_mapping or not {"dim", "sizes"} <= set(saved) <= known:
            got = sorted(map(str, saved)) if is_mapping else repr(saved)
            raise (UsageError if is_mapping else WrongTypeError)(
                f"saved buckets have the entries dim, sizes, fill and cut, got {got}",
                code="OST1002",
                remedy="pass what Buckets.to_dict returned",
            )
        return cls(**saved)  # type: ignore[arg-type]  # __init__ checks every value

    def to_dict(self) -> dict[str, object]:
        """Return plain values (JSON can hold them) from which `from_dict` makes equal buckets."""
        return {
            "dim": self.dim,
            "sizes": list(self.sizes),
            "fill": self.fill,
            "cut": None if self.cut is None else dict(self.cut),
        }

    def fit(self, size: int) -> int | None:
        """Return the smallest bucket that holds `size`, or None if none does.

        None means "run eagerly"; the runner records why.

        Raises:
            UsageError: OST1003, `size` is less than 1.
        """
        if not _is_whole(size):
            raise WrongTypeError(
                f"the size of a call is a whole number, got {size!r}",
                code="OST1003",
                remedy="pass how many rows the call has, such as x.shape[0]",
            )
        if size < 1:
            raise UsageError(
                f"a bucket holds at least 1 row, got {size}",
                code="OST1003",
                remedy="run an empty batch eagerly, or skip it",
            )
        position = bisect_left(self.sizes, size)
        return self.sizes[position] if position < len(self.sizes) else None

    def dim_of(self, ndim: int, path: str = "") -> int:
        """Return `dim` counted from the front, for the tensor of `ndim` dimensions at `path`.

        Raises:
            UsageError: OST1005, the tensor has no such dimension.
        """
        if not -ndim <= self.dim < ndim:
            name = f"{path!r}" if path else "a tensor"
            raise UsageError(
                f"buckets for {name} are on dim {self.dim}, but it has {ndim} dimensions",
                code="OST1005",
                remedy=f"pass a dim from {-ndim} to {ndim - 1}"
                if ndim
                else "leave it out of `buckets`: a single value has no size that varies",
            )
        return self.dim % ndim

    def padded_share(self, trace: Iterable[int]) -> float:
        """Return the share of computed rows that would be padding if `trace` ran on these sizes."""
        return learning.padded_share(self.sizes, trace)

    def __repr__(self) -> str:
        sizes = str(self.sizes)
        if len(self.sizes) > _LISTED_IN_REPR:
            first = ", ".join(map(str, self.sizes[:4]))
            sizes = f"({first}, ..., {self.sizes[-1]}: {len(self.sizes)} sizes)"
        cut = "" if self.cut is None else f", cut={dict(self.cut)}"
        return f"{type(self).__name__}(dim={self.dim}, sizes={sizes}, fill={self.fill!r}{cut})"

    def __reduce__(self) -> tuple[object, ...]:
        # The read-only view of `cut` cannot be pickled.
        cut = None if self.cut is None else dict(self.cut)
        return (type(self), (self.dim, self.sizes, self.fill, cut))


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _whole_dim(dim: object) -> int:
    if not _is_whole(dim):
        raise WrongTypeError(
            f"dim must be a whole number, got {dim!r}",
            code="OST1005",
            remedy="pass the dimension that varies, such as dim=1",
        )
    return index(dim)  # type: ignore[arg-type]  # _is_whole


def _ascending_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        given: tuple[Any, ...] = (None,) if isinstance(sizes, Mapping) else tuple(sizes)
    except TypeError:
        given = (None,)
    if not all(map(_is_whole, given)):
        raise WrongTypeError(
            f"bucket sizes must be a sequence of whole numbers, got {sizes!r}",
            code="OST1002",
            remedy="pass sizes such as (1, 2, 4, 8)",
        )
    whole = tuple(map(index, given))
    ascending = all(small < large for small, large in pairwise(whole))
    if not whole or whole[0] < 1 or not ascending:
        raise UsageError(
            f"bucket sizes must be positive and strictly ascending, got {whole}",
            code="OST1002",
            remedy="pass sizes such as (1, 2, 4, 8)",
        )
    return whole


def _known_fill(fill: object) -> Fill:
    if isinstance(fill, str) and fill in POLICIES:
        return fill  # type: ignore[return-value]  # one of POLICIES
    remedy = f"pass a number or one of {', '.join(map(repr, POLICIES))}"
    if isinstance(fill, Real):
        if not isinstance(fill, bool | int | float):  # numpy's
            fill = index(fill) if isinstance(fill, Integral) else float(fill)
        if isnan(fill):
            raise UsageError(
                f"fill cannot be {fill}: padding would spread through every sum over it",
                code="OST1004",
                remedy=remedy,
            )
        return fill
    raise (UsageError if isinstance(fill, str) else WrongTypeError)(
        f"fill must be a number or a policy, got {fill!r}", code="OST1004", remedy=remedy
    )


def _read_only_cut(cut: object) -> Mapping[str, int] | None:
    if cut is None:
        return None
    if not isinstance(cut, Mapping) or not all(
        isinstance(path, str) and _is_whole(dim) for path, dim in cut.items()
    ):
        raise WrongTypeError(
            f"cut must map output paths to dimensions, got {cut!r}",
            code="OST1006",
            remedy='pass a mapping such as {"logits": 1}, or {"": 0} for a lone output',
        )
    return MappingProxyType({path: index(dim) for path, dim in cut.items()})
