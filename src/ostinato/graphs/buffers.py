"""The static inputs of a recording: where they live, and how a call's tensors get into them.

A replay reads fixed addresses, so every tensor of a call is copied into its static twin first. The
twin keeps the layout of the original, and tensors that share memory share it here too: writing
through one must be seen through the other, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.graphs.buckets import Fill
from ostinato.graphs.padding import pad_tail
from ostinato.graphs.signing import span_bytes
from ostinato.graphs.state import TensorState

_ALIGNMENT = 16
_KNOWN_SIZES = 64

Copy = Callable[[Sequence[Tensor], Sequence[Tensor]], None]


@dataclass(frozen=True, slots=True)
class Fit:
    """One bucketed leaf of a call: `real` rows of it lie in a bucket of `bucket` along `dim`."""

    leaf: int
    dim: int
    real: int
    bucket: int
    fill: Fill
    cut: Mapping[str, int] | None = None


@dataclass(slots=True)
class _Padded:
    """A bucketed static tensor, and from where on its tail is known to hold the fill."""

    leaf: int
    dim: int
    fill: Fill
    static: Tensor
    clean_from: int | None = None
    _fronts: dict[int, Tensor] = field(default_factory=dict)

    def front(self, given: Any) -> Tensor:
        """Return the part that the real rows of a call fill."""
        rows = given.shape[self.dim]
        front = self._fronts.get(rows)
        if front is None:
            front = self.static.narrow(self.dim, 0, rows)
            if len(self._fronts) < _KNOWN_SIZES:
                self._fronts[rows] = front
        return front

    def fill_tail(self, given: Any) -> None:
        """Apply the policy behind the real rows of a call."""
        rows = given.shape[self.dim]
        if (rows != self.static.shape[self.dim] and self.clean_from != rows) or self._repeats:
            pad_tail(self.static, rows, self.dim, self.fill, self.clean_from)
        self.clean_from = rows

    @property
    def _repeats(self) -> bool:
        return self.fill == "repeat-last"


@dataclass(frozen=True, slots=True)
class _Region:
    """Bytes that several leaves, or one that overlaps itself, share; copied as a whole.

    Attributes:
        leaf: The leaf that starts first.
        members: All leaves in it.
        static: The bytes.
    """

    leaf: int
    members: frozenset[int]
    static: Tensor


class StaticInputs:
    """The fixed tensors of one recording.

    Args:
        leaves: Leaves of the call that is recorded; its tensors give layout and device.
        fits: The bucketed ones.
        overlaps: Groups that share memory, as `signing.overlaps` returns them.
        copy: How a backend copies many tensors into as many others.

    Attributes:
        leaves: The leaves, with the static tensors in the place of the caller's.
        tensors: The static tensors, in the order of the leaves.
        leaf_of: Leaf index of each static tensor.
        nbytes: Memory they take.
        fill_one: Where leaf 0 is the only tensor and as plain as can be: `fill` for that leaf.
    """

    def __init__(
        self,
        leaves: Sequence[object],
        fits: Sequence[Fit],
        overlaps: Sequence[tuple[int, ...]],
        copy: Copy,
    ) -> None:
        self.leaves = list(leaves)
        self.nbytes = 0
        self._copy = copy
        self._padded: list[_Padded] = []
        self._regions: list[_Region] = []
        self._plain: list[int] = []
        shared = {leaf for group in overlaps for leaf in group[::2]}
        by_leaf = {fit.leaf: fit for fit in fits}
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor) or index in shared:
                continue
            if index in by_leaf:
                self._add_padded(by_leaf[index], leaf)
            elif may_overlap_itself(leaf):
                self._add_region([index], [0], leaves)
            else:
                self._add_plain(index, leaf)
        for group in overlaps:
            self._add_region(group[::2], group[1::2], leaves)
        self.leaf_of = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        self._plain_statics = [self._static(i) for i in self._plain]
        # One tensor goes by itself, as every backend does it, without the frames in between.
        is_one = self._plain == [0] and len(self.tensors) == 1
        self.fill_one: Callable[[Any], object] | None = self.tensors[0].copy_ if is_one else None
        self._only_plain = not (self._padded or self._regions)
        self._as_given = self._plain == list(range(len(self.leaves)))

    def _static(self, leaf: int) -> Tensor:
        tensor = self.leaves[leaf]
        assert isinstance(tensor, Tensor)
        return tensor

    def _add_plain(self, index: int, leaf: Tensor) -> None:
        static = torch.empty_strided(
            leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device
        )
        self.leaves[index] = _as_kind_of(leaf, static)
        self.nbytes += span_bytes(leaf)
        self._plain.append(index)

    def _add_padded(self, fit: Fit, leaf: Tensor) -> None:
        shape = list(leaf.shape)
        shape[fit.dim] = fit.bucket
        static = torch.zeros(shape, dtype=leaf.dtype, device=leaf.device)
        static = _as_kind_of(leaf, static)
        self.leaves[fit.leaf] = static
        self.nbytes += static.nbytes
        self._padded.append(_Padded(fit.leaf, fit.dim, fit.fill, static))

    def _add_region(
        self, members: Sequence[int], offsets: Sequence[int], leaves: Sequence[object]
    ) -> None:
        given = [leaves[index] for index in members]
        tensors = [leaf for leaf in given if isinstance(leaf, Tensor)]
        nbytes = max(at + span_bytes(t) for at, t in zip(offsets, tensors, strict=True))
        phase = _phase(tensors[list(offsets).index(0)])
        memory = torch.empty(phase + nbytes, dtype=torch.uint8, device=tensors[0].device)
        static = memory[phase:]
        done: dict[tuple[int, int], Tensor] = {}
        for index, at, tensor in zip(members, offsets, tensors, strict=True):
            # One object per object: a function may ask whether it was given the same tensor twice.
            key = (id(tensor), at)
            done.setdefault(key, typed_view(memory, phase + at, tensor))
            self.leaves[index] = done[key]
        self.nbytes += memory.nbytes
        first = members[list(offsets).index(0)]
        self._regions.append(_Region(first, frozenset(members), static))

    def fill(self, leaves: Sequence[object]) -> None:
        """Copy the tensors of a call in; padding is filled by its policy.

        **Capture:** safe to run before a replay on the same stream; never waits for the device.
        """
        if self.fill_one is not None:
            self.fill_one(leaves[0])
            return
        given: Any = leaves if self._as_given else [leaves[i] for i in self._plain]
        statics = self._plain_statics
        if self._only_plain:
            if statics:
                self._copy(statics, given)
            return
        if self._padded:
            padding = [leaves[padded.leaf] for padded in self._padded]
            statics = [*statics, *map(_Padded.front, self._padded, padding)]
            given = [*given, *padding]
        if statics:
            self._copy(statics, given)
        for padded in self._padded:
            padded.fill_tail(leaves[padded.leaf])
        for region in self._regions:
            region.static.copy_(bytes_of(leaves[region.leaf], region.static.nbytes))

    def forget_padding(self) -> None:
        """The tails may hold anything from now on: something other than `fill` wrote to them."""
        for padded in self._padded:
            padded.clean_from = None

    def save(self) -> TensorState:
        """Keep the present contents; `restore()` of the result puts them back."""
        tensors = [*self._plain_statics, *(p.static for p in self._padded)]
        return TensorState([*tensors, *(region.static for region in self._regions)])

    def is_apart(self, leaf: int) -> bool:
        """Whether a leaf shares no memory with another, nor with itself."""
        return not any(leaf in region.members for region in self._regions)

    def padded_tails(self, leaves: Sequence[object]) -> list[tuple[Tensor, int, int]]:
        """Return `(static tensor, dim, first padded index)` of the bucketed leaves of a call."""
        return [
            (p.static, p.dim, leaf.shape[p.dim])
            for p in self._padded
            if isinstance(leaf := leaves[p.leaf], Tensor)
        ]

    def told_of_padding(self, leaves: Sequence[object], paths: Sequence[str]) -> str:
        """Say what a call is padded with, and what else could be; "" if it fills its buckets."""
        told = [
            f"{paths[p.leaf]} was padded from {leaf.shape[p.dim]} to {p.static.shape[p.dim]} "
            f"with fill={p.fill!r}"
            for p in self._padded
            if isinstance(leaf := leaves[p.leaf], Tensor)
            and leaf.shape[p.dim] < p.static.shape[p.dim]
        ]
        if not told:
            return ""
        return f'{" and ".join(told)}: declare a fill that the function can take, or "repeat-last"'

    def written_as_given(self, leaves: Sequence[object], written: frozenset[int]) -> list[Tensor]:
        """Return the written static tensors, cut to the sizes of a call's own tensors."""
        cut = []
        for index in sorted(written):
            static, given = self.tensors[index], leaves[self.leaf_of[index]]
            assert isinstance(given, Tensor)
            for dim, size in enumerate(given.shape):
                static = static.narrow(dim, 0, size)
            cut.append(static)
        return cut

    def write_back(self, leaves: Sequence[object], written: frozenset[int]) -> None:
        """Copy what a run wrote to its inputs into the caller's tensors.

        Args:
            leaves: Leaves of the call.
            written: Indices into `tensors`.
        """
        targets = {self.leaf_of[index] for index in written}
        for leaf in targets.intersection(self._plain):
            target = leaves[leaf]
            assert isinstance(target, Tensor)
            target.copy_(self._static(leaf))
        for padded in self._padded:
            if padded.leaf in targets:
                target = leaves[padded.leaf]
                assert isinstance(target, Tensor)
                target.copy_(padded.static.narrow(padded.dim, 0, target.shape[padded.dim]))
                padded.clean_from = None
        for region in self._regions:
            for leaf in targets & region.members:
                # Not all bytes: those between the elements are somebody else's.
                target = leaves[leaf]
                assert isinstance(target, Tensor)
                every_element_once(target).copy_(every_element_once(self._static(leaf)))


def typed_view(static_bytes: Tensor, offset: int, like: Tensor) -> Tensor:
    """View bytes `offset` onward with the dtype, shape and strides of `like`."""
    view = torch.empty(0, dtype=like.dtype, device=like.device)
    return view.set_(
        static_bytes.untyped_storage(), offset // like.element_size(), like.shape, like.stride()
    )


def bytes_of(tensor: object, nbytes: int) -> Tensor:
    """View the memory from a tensor's first element on as `nbytes` bytes."""
    assert isinstance(tensor, Tensor)
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size()
    return view.set_(tensor.untyped_storage(), start, (nbytes,), (1,))


def _phase(tensor: Tensor) -> int:
    """How far behind an aligned address a tensor starts: its neighbours' alignment rests on it."""
    return int(tensor.storage_offset()) * tensor.element_size() % _ALIGNMENT


def may_overlap_itself(tensor: Tensor) -> bool:
    """Whether two elements may lie at one address: expanded tensors, sliding windows."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return True
            reach += (size - 1) * step
    return False


def every_element_once(tensor: Tensor) -> Tensor:
    """View an expanded tensor without its repetitions: torch refuses to write through those."""
    repeated = [
        step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    ]
    return (
        tensor[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
        if any(repeated)
        else tensor
    )


def _as_kind_of(leaf: Tensor, static: Tensor) -> Tensor:
    """Return `static` as a parameter where `leaf` is one: a function may ask."""
    if type(leaf) is not Parameter:
        return static
    return Parameter(static, requires_grad=False)
