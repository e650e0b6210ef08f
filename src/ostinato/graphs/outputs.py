"""What a call gets back from a recording: who owns each output, and how it is cut to size.

Decided once per recording, followed on every replay. Outputs that the recording made are copied, so
that the caller owns them for ever; an output that is one of the caller's tensors is handed back as
such, and one that is a view of it as a view of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ostinato.graphs.buffers import typed_view
from ostinato.graphs.extents import Extent
from ostinato.graphs.lease import Generation, Lease
from ostinato.graphs.padded_views import try_padded_view
from ostinato.graphs.signing import span_bytes
from ostinato.graphs.tree import flatten
from ostinato.graphs.unfit_results import is_plain, refuse_unfit

# A copy that keeps gaps between rows may cost this much more than a dense one before it is not
# worth it.
_GAP_FACTOR = 2
_KNOWN_SIZES = 64


class _Output(Protocol):
    """How one output leaf is produced. `is_ours`: it lies in the recording's memory."""

    @property
    def is_ours(self) -> bool: ...

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> object: ...


@dataclass(frozen=True, slots=True)
class _Constant:
    """A Python value, or a tensor of the callable's own such as a parameter."""

    value: object
    is_ours: bool = False

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> object:
        return self.value


@dataclass(frozen=True, slots=True)
class _Given:
    """One of the caller's own tensors."""

    leaf: int
    is_ours: bool = False

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> object:
        return leaves[self.leaf]


@dataclass(frozen=True, slots=True)
class _GivenView:
    """A view of one of the caller's tensors, `offset` bytes behind its first element."""

    leaf: int
    offset: int
    like: Tensor
    is_ours: bool = False

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> object:
        base = leaves[self.leaf]
        assert isinstance(base, Tensor)
        if base.dtype is self.like.dtype:
            start = base.storage_offset() + self.offset // base.element_size()
            return _as_read(base.as_strided(self.like.shape, self.like.stride(), start), self.like)
        at = int(base.storage_offset()) * base.element_size() + self.offset
        if at % self.like.element_size():
            raise ValueError("an input lies at an address that a view of this dtype cannot have")
        return _as_read(typed_view(base, at, self.like), self.like)


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor that the recording made, cut back where padding reached it."""

    static: Tensor
    extents: tuple[Extent, ...] | None
    is_ours: bool = True

    def take(self, leaves: Sequence[object], sizes: Sequence[int]) -> Tensor:
        view = self.static
        for dim, extent in enumerate(self.extents or ()):
            size = extent.at(sizes)
            if size != view.shape[dim]:
                view = view.narrow(dim, 0, size)
        return view


class HandOut:
    """The outputs of one recording.

    Args:
        result: What the step returned while it was recorded.
        statics: The static inputs, and `leaf_of` their leaf indices.
        externals: Tensors of the callable's own: an output that is one of them is not copied.
        extents: Per output leaf, how its dimensions follow the bucketed sizes; None without
            buckets.
        padded: Static inputs that are bucketed: their layout is not the caller's.
        observed: What another run returned: a Python value has to be the same in both.
        objects: Leaves of the call; one of them may be handed back.
        held: Tensors that the callable holds, whether or not the run used them. One that is
            returned itself is no result of a run, and is handed back as it is.

    Attributes:
        own_one: Where the result is one tensor that needs nothing but a copy: `own` of any call.

    Raises:
        CaptureError: OST1101, the result holds something that a replay could not hand out.
    """

    def __init__(
        self,
        result: object,
        statics: Sequence[Tensor],
        leaf_of: Sequence[int],
        externals: Sequence[Tensor],
        extents: Sequence[tuple[Extent, ...] | None] | None,
        padded: frozenset[int],
        observed: object,
        objects: Sequence[object] = (),
        held: Sequence[Tensor] = (),
    ) -> None:
        leaves, self.structure = flatten(result)
        itself = {id(tensor) for tensor in (*externals, *held)}
        given = {id(t): leaf for t, leaf in zip(statics, leaf_of, strict=True)}
        refuse_unfit(result, observed, objects, itself, itself | given.keys())
        self._bare = self.structure.kind is None
        origins = _origins(statics, leaf_of)
        own = {_home(t) for t in externals if is_plain(t) and t.numel()}
        self._outputs: list[_Output] = []
        for index, leaf in enumerate(leaves):
            extent = extents[index] if extents is not None else None
            self._outputs.append(
                _Constant(leaf)
                if id(leaf) in itself
                else _place(leaf, given, origins, own, extent, padded)
            )
        self._together = _shared_groups(self._outputs)
        made = [o.static for o in self._outputs if isinstance(o, _Made)]
        is_simple = extents is None and not self._together and len(made) == len(self._outputs)
        self._copies: dict[Sequence[int], list[Callable[[], Tensor] | None]] = {}
        self._simple = made if is_simple and all(map(_clones_alike, made)) else None
        self.own_one = made[0].clone if self._simple and self._bare else None

    @property
    def made(self) -> list[Tensor]:
        """The static tensors that the recording made."""
        return [o.static for o in self._outputs if isinstance(o, _Made)]

    def own(self, leaves: Sequence[object], sizes: Sequence[int]) -> object:
        """Return the outputs as tensors that the caller owns.

        Args:
            leaves: Leaves of the call.
            sizes: Real size of each bucketed axis.
        """
        if self._simple is not None:
            if self.own_one is not None:
                return self.own_one()
            return self.structure.unflatten([static.clone() for static in self._simple])
        values = [
            output.take(leaves, sizes) if copy is None else copy()
            for output, copy in zip(self._outputs, self._copies_at(sizes), strict=True)
        ]
        for group in self._together:
            views = [value for i in group if isinstance(value := values[i], Tensor)]
            for i, shared in zip(group, _copy_together(views), strict=True):
                values[i] = shared
        return self.structure.unflatten(values)

    def _copies_at(self, sizes: Sequence[int]) -> list[Callable[[], Tensor] | None]:
        """Return how to copy each output at these sizes; None for one that is not copied alone."""
        known = self._copies.get(sizes)
        if known is None:
            together = {i for group in self._together for i in group}
            known = [
                _copying(output, output.take((), sizes))
                if isinstance(output, _Made) and i not in together
                else None
                for i, output in enumerate(self._outputs)
            ]
            if len(self._copies) < _KNOWN_SIZES:
                self._copies[sizes] = known
        return known

    def lease(self, leaves: Sequence[object], sizes: Sequence[int], source: Generation) -> object:
        """Return every output tensor as a `Lease` on the recording's memory."""
        values = [
            _leased(output.take(leaves, sizes), source if output.is_ours else None)
            for output in self._outputs
        ]
        return self.structure.unflatten(values)


def lease_all(result: object) -> object:
    """Wrap every tensor of an eager result in a lease that never goes stale."""
    leaves, structure = flatten(result)
    return structure.unflatten([_leased(leaf, None) for leaf in leaves])


def _leased(value: object, source: Generation | None) -> object:
    if not isinstance(value, Tensor):
        return value
    return Lease(value, source)


def _as_read(view: Tensor, like: Tensor) -> Tensor:
    """Conjugate or negate on reading, as the output that was recorded."""
    if like.is_conj():
        view = view.conj()
    return torch._neg_view(view) if like.is_neg() else view


def _home(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _origins(statics: Sequence[Tensor], leaf_of: Sequence[int]) -> dict[int, tuple[int, Tensor]]:
    """Map the storage of each static input to its leaf."""
    return {_home(t): (leaf, t) for t, leaf in zip(statics, leaf_of, strict=True) if t.numel()}


def _place(
    leaf: object,
    given: dict[int, int],
    origins: dict[int, tuple[int, Tensor]],
    own: set[int],
    extent: tuple[Extent, ...] | None,
    padded: frozenset[int],
) -> _Output:
    if not isinstance(leaf, Tensor):
        return _Constant(leaf)
    if id(leaf) in given:
        return _Given(given[id(leaf)])
    if not leaf.numel():
        return _Made(leaf, extent)
    home = _home(leaf)
    if home in origins:
        index, static = origins[home]
        if index in padded:  # whose layout is not the caller's
            return try_padded_view(leaf, static, index, extent) or _Made(leaf, extent)
        offset = leaf.data_ptr() - static.data_ptr()
        if offset % leaf.element_size() == 0:
            return _GivenView(index, offset, leaf)
    if home in own:
        return _Constant(leaf)
    return _Made(leaf, extent)


def _shared_groups(outputs: Sequence[_Output]) -> list[list[int]]:
    """Group outputs that share memory: the copies must share it too."""
    homes: dict[int, list[int]] = {}
    for index, output in enumerate(outputs):
        if isinstance(output, _Made) and output.static.numel():
            homes.setdefault(_home(output.static), []).append(index)
    groups = [group for group in homes.values() if len(group) > 1]
    return [g for g in groups if _worth_copying_together([_static(outputs[i]) for i in g])]


def _static(output: _Output) -> Tensor:
    assert isinstance(output, _Made)
    return output.static


def _worth_copying_together(tensors: Sequence[Tensor]) -> bool:
    start = min(t.data_ptr() for t in tensors)
    end = max(t.data_ptr() + span_bytes(t) for t in tensors)
    return end - start <= _GAP_FACTOR * sum(t.nbytes for t in tensors)


def _copy_together(views: Sequence[Tensor]) -> list[Tensor]:
    start = min(t.data_ptr() for t in views)
    nbytes = max(t.data_ptr() - start + span_bytes(t) for t in views)
    first = next(t for t in views if t.data_ptr() == start)
    source = torch.empty(0, dtype=torch.uint8, device=first.device).set_(
        first.untyped_storage(), first.storage_offset() * first.element_size(), (nbytes,), (1,)
    )
    copy = source.clone()
    copies: dict[int, Tensor] = {}
    for view in views:
        alike = _as_read(typed_view(copy, view.data_ptr() - start, view), view)
        copies.setdefault(id(view), alike)
    return [copies[id(view)] for view in views]


def _clones_alike(tensor: Tensor) -> bool:
    if tensor.is_conj() or tensor.is_neg():  # a clone is what they read as
        return False
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _copying(output: _Made, view: Tensor) -> Callable[[], Tensor]:
    """Choose how one output is copied: with its strides, unless it would copy mostly gaps."""
    if view.is_conj() or view.is_neg():
        copy = _copying(output, _as_read(view, view))  # twice is not at all
        return lambda: _as_read(copy(), view)
    is_cut = view.shape != output.static.shape
    if is_cut and output.static.is_contiguous():
        return functools.partial(view.clone, memory_format=torch.contiguous_format)
    keeps_strides = is_cut or view.numel() == 0 or _clones_alike(view)
    if keeps_strides or span_bytes(view) > _GAP_FACTOR * view.nbytes:
        return view.clone
    return lambda: _copy_together([view])[0]
