"""From a call's arguments to its signature, with bucketed sizes rounded up. Runs on every call."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ostinato.graphs.ambient import ambient, mode_around, read_mode
from ostinato.graphs.buckets import Buckets
from ostinato.graphs.buffers import Fit
from ostinato.graphs.extents import Axis
from ostinato.graphs.memo import Memo, try_memo
from ostinato.graphs.options import check_paths, parameter_names, sees_keyword_order
from ostinato.graphs.padding import check_fill
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import ObjectSpec, Signature, TensorSpec, UnfitSpec
from ostinato.graphs.signing import (
    LeafSpec,
    Opening,
    leaf_spec,
    overlaps,
    value_spec,
)
from ostinato.graphs.tree import SURE_LEAVES, Structure

if TYPE_CHECKING:
    from ostinato.graphs.watch import Watch

_KNOWN_STRUCTURES = 1024
_MEMOS_EACH = 8
"""Situations recognised at a glance, per structure: looking through them must stay cheap."""

_NO_FIT: tuple[tuple[Fit, ...], tuple[Axis, ...], tuple[int, ...]] = ((), (), ())
_SHARED_AND_BUCKETED = (
    Reason.UNSUPPORTED_INPUT,
    "a bucketed tensor shares memory with another one",
)
_SHARED_UNSEEN = (
    Reason.UNSUPPORTED_INPUT,
    "two tensors share memory through storages of their own",
)


Call = tuple[tuple[object, ...], Mapping[str, object]]


class Situation(NamedTuple):
    """What a call looks like, apart from its tensors' values: one object for all calls alike.

    Attributes:
        signature: Its key; None when the call cannot have a recording.
        fits: The bucketed leaves.
        axes: Bucketed dimensions that vary together, with their real sizes.
        unfit: Why there is no signature.
        sizes: Real size of each axis.
        padded_rows: Rows of padding, of the bucketed leaves that were padded most.
        real_rows: Rows of the caller's, in the first bucketed leaf.
    """

    signature: Signature | None
    fits: tuple[Fit, ...] = ()
    axes: tuple[Axis, ...] = ()
    unfit: tuple[Reason, str] | None = None
    sizes: tuple[int, ...] = ()
    padded_rows: int = 0
    real_rows: int = 0


class Occasion(NamedTuple):
    """One call that a replay did not answer at once, for the ways beside the path.

    Attributes:
        situation: What it looks like.
        leaves: Its leaves.
        call: The caller's own arguments.
        watch: The watch over what it reaches.
    """

    situation: Situation
    leaves: list[object]
    call: Call
    watch: Watch


class _Kept(NamedTuple):
    """A memo, the settings that it does not see by itself, and whether it sees modes."""

    around: tuple[Any, ...]
    memo: Memo[Situation]
    sees_modes: bool


class Fitting:
    """Signs the calls of one callable.

    Args:
        fn: The callable; only its parameter names are read.
        buckets: Argument name or path -> buckets.
    """

    def __init__(self, fn: Callable[..., Any], buckets: Mapping[str, Buckets]) -> None:
        names, _ = parameter_names(fn)
        self.open = Opening(names, sees_order=sees_keyword_order(fn)).open
        self._buckets = dict(buckets)
        self._found_paths: set[str] = set()
        self._bucketed: dict[Structure, tuple[tuple[int, str, Buckets], ...]] = {}
        self._memos: dict[Structure, tuple[_Kept, ...]] = {}

    def sign(
        self,
        leaves: list[object],
        structure: Structure,
        training: tuple[bool, ...],
    ) -> Situation:
        """Sign a call.

        Args:
            leaves: As `open` took it apart.
            structure: Likewise.
            training: Flags of the modules that it reaches.

        Raises:
            UsageError: OST1005, a bucketed tensor lacks the declared dimension; OST1004, its type
                cannot hold the declared fill; OST1012, a declared path leads nowhere.
        """
        around = ambient()
        memos = self._memos.get(structure, ())
        for then, memo, sees_modes in memos:
            if then == around and memo.holds(leaves, training):
                if not sees_modes and mode_around() is not None:
                    break
                return memo.outcome
        situation = self._describe(leaves, structure, training)
        if situation.signature is not None and not situation.signature.overlaps:
            made = try_memo(leaves, training, situation)
            if made is not None and (memos or len(self._memos) < _KNOWN_STRUCTURES):
                # A new tuple: another thread may be walking through the old one.
                # That a mode is entered shows in a tensor's dispatch keys, if there is a tensor.
                sees_modes = any(isinstance(leaf, Tensor) for leaf in leaves)
                kept = _Kept(around, made, sees_modes)
                self._memos[structure] = (kept, *memos[: _MEMOS_EACH - 1])
        return situation

    def _describe(
        self, leaves: list[object], structure: Structure, training: tuple[bool, ...]
    ) -> Situation:
        mode = read_mode()
        specs = [leaf_spec(leaf, grad=True) for leaf in leaves]
        unfit = _unfit_leaf(specs, structure)
        if unfit is not None:
            return Situation(None, unfit=unfit)
        if (around := mode_around()) is not None:
            return Situation(None, unfit=(Reason.MODE_AROUND, around))
        shared = overlaps(leaves) if len(leaves) > 1 else ()
        if shared:
            if not _share_storages(leaves, shared):
                return Situation(None, unfit=_SHARED_UNSEEN)
            _mark_same_objects(specs, leaves, shared)
        fits, axes, together = self._fit(leaves, structure) if self._buckets else _NO_FIT
        if isinstance(axes, Reason):
            return Situation(None, unfit=(axes, str(together)))
        if shared and any(fit.leaf in group[::2] for fit in fits for group in shared):
            return Situation(None, unfit=_SHARED_AND_BUCKETED)
        for fit in fits:
            spec = specs[fit.leaf]
            assert isinstance(spec, TensorSpec)
            shape = (*spec.shape[: fit.dim], fit.bucket, *spec.shape[fit.dim + 1 :])
            specs[fit.leaf] = spec._replace(shape=shape, stride=())  # our own contiguous tensor
        signature = Signature(structure, tuple(specs), shared, together, mode, training)  # type: ignore[arg-type]
        sizes = tuple(axis.size for axis in axes)
        padded = max((fit.bucket - fit.real for fit in fits), default=0)
        real = fits[0].real if fits else 0
        return Situation(signature, fits, axes, None, sizes, padded, real)

    def _fit(
        self, leaves: list[object], structure: Structure
    ) -> tuple[tuple[Fit, ...], tuple[Axis, ...], tuple[int, ...]] | tuple[tuple[()], Reason, str]:
        """Find the buckets of a call; a reason and its detail in place of axes if it fits none."""
        fits: list[Fit] = []
        together: list[int] = []
        members: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]] = {}
        for index, path, buckets in self._bucketed_leaves(structure):
            leaf = leaves[index]
            if not isinstance(leaf, Tensor):
                continue  # an optional argument that is None
            dim = buckets.dim_of(leaf.dim(), path)
            check_fill(leaf.dtype, buckets.fill, path)
            real = leaf.shape[dim]
            if leaf.numel() == 0:
                return (), Reason.EMPTY_BATCH, f"{path} has shape {list(leaf.shape)}"
            bucket = buckets.fit(real)
            if bucket is None:
                largest = buckets.sizes[-1]
                detail = f"{path} has {real} along dim {dim}, the largest bucket is {largest}"
                return (), Reason.OUTSIDE_BUCKETS, detail
            fits.append(Fit(index, dim, real, bucket, buckets.fill, buckets.cut))
            axis = members.setdefault((buckets.sizes, real), [])
            axis.append((index, dim))
            together.append(list(members).index((buckets.sizes, real)))
        axes = tuple(Axis(tuple(where), real, sizes) for (sizes, real), where in members.items())
        return tuple(fits), axes, tuple(together)

    def _bucketed_leaves(self, structure: Structure) -> tuple[tuple[int, str, Buckets], ...]:
        known = self._bucketed.get(structure)
        if known is None:
            missing = self._buckets.keys() - self._found_paths
            check_paths(missing, structure)
            self._found_paths |= missing & set(structure.paths)
            known = tuple(
                (index, path, self._buckets[path])
                for index, path in enumerate(structure.paths)
                if path in self._buckets
            )
            if len(self._bucketed) < _KNOWN_STRUCTURES:
                self._bucketed[structure] = known
        return known


def _unfit_leaf(specs: list[LeafSpec], structure: Structure) -> tuple[Reason, str] | None:
    for index, spec in enumerate(specs):
        if isinstance(spec, UnfitSpec):
            path = structure.paths[index]
            return Reason.UNSUPPORTED_INPUT, f"{path} is {spec.what}"
    return None


def _share_storages(leaves: list[object], shared: tuple[tuple[int, ...], ...]) -> bool:
    """Whether tensors that share memory do so as views of one storage, the only way torch knows."""
    return all(len({_storage(leaves[index]) for index in group[::2]}) == 1 for group in shared)


def _storage(leaf: object) -> int:
    assert isinstance(leaf, Tensor)
    return int(leaf.untyped_storage()._cdata)


def _mark_same_objects(
    specs: list[LeafSpec], leaves: list[object], shared: tuple[tuple[int, ...], ...]
) -> None:
    """Tell the same tensor given twice from two views of the same memory: `a is b` can be asked."""
    for group in shared:
        first: dict[int, int] = {}
        for index in sorted(group[::2]):
            earlier = first.setdefault(id(leaves[index]), index)
            spec = specs[index]
            if earlier != index and isinstance(spec, TensorSpec):
                specs[index] = spec._replace(same_as=earlier)


def objects_in(leaves: Sequence[object]) -> tuple[object, ...]:
    """Return the leaves that a signature holds by identity: their insides have to be watched."""
    for leaf in leaves:
        if type(leaf) not in SURE_LEAVES:
            break
    else:
        return ()
    return tuple(
        part
        for leaf in leaves
        if type(leaf) not in SURE_LEAVES
        and not isinstance(leaf, Tensor | torch.Generator)
        and isinstance(value_spec(leaf), ObjectSpec)
        for part in _parts(leaf)
    )


def _parts(leaf: object) -> tuple[object, ...]:
    # A bound method is another object at each look-up.
    return (leaf.__self__, leaf.__func__) if isinstance(leaf, types.MethodType) else (leaf,)
