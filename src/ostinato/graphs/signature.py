"""What must match for a replay to be legal: plain values and how they compare.

A recording replays one exact situation: these shapes and strides, these Python values, this
autocast. A `Signature` is that situation as a hashable value; two calls with equal signatures may
share a recording. Nothing here touches a tensor: `signing.py` reads the values off a call.
"""

from __future__ import annotations

import types
import weakref
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ostinato.class_name import class_name, own_name
from ostinato.graphs.tree import Structure


class TensorSpec(NamedTuple):
    """What of a tensor a recording depends on.

    Attributes:
        shape: The size that is recorded: the bucket's along a bucketed dimension.
        stride: In elements; the contiguous one for a bucketed tensor, whose copy is ours.
        dtype: As torch names it.
        device: With its index.
        requires_grad: Also where gradients are off: code may ask.
        same_as: Index of an earlier leaf that is the same object.
        is_parameter: Whether it is an `nn.Parameter`, which code may ask, too.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool = False
    same_as: int | None = None
    is_parameter: bool = False

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}@{self.device}"


class ValueSpec(NamedTuple):
    """A Python value that a recording freezes; equal type and equal value match."""

    kind: type
    value: Any

    def __str__(self) -> str:
        try:
            return repr(self.value)
        except Exception:  # noqa: BLE001 - of an `Enum` of the user's
            return f"<{own_name(self.kind)}>"


class ObjectSpec:
    """An object of a type we cannot look into: the same object matches, nothing else does.

    A bound method is the same if its object and its function are.

    Held weakly where that can be: a signature that never came again must not keep a whole KV cache.
    A dead object matches nothing, so that a new one at its address is not taken for it.
    """

    __slots__ = ("_hash", "_strong", "_weak")

    def __init__(self, value: object) -> None:
        self._hash = id(value)
        self._strong: object = None
        self._weak: Any = None
        try:
            if isinstance(value, types.MethodType):  # each look-up makes another
                self._hash = hash((id(value.__self__), id(value.__func__)))
                self._weak = weakref.WeakMethod(value)
            else:
                self._weak = weakref.ref(value)
        except TypeError:
            self._strong = value

    @property
    def value(self) -> object:
        """The object; None when it is gone."""
        return self._strong if self._weak is None else self._weak()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectSpec) or self._hash != other._hash:
            return False
        value = self.value
        return value is not None and _is_one(value, other.value)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"<{class_name(self.value)}>"


def _is_one(value: object, other: object) -> bool:
    if isinstance(value, types.MethodType) and isinstance(other, types.MethodType):
        return value.__self__ is other.__self__ and value.__func__ is other.__func__
    return value is other


class UnfitSpec(NamedTuple):
    """A leaf that no replay could refresh, and what it is in words: "a sparse tensor"."""

    what: str


class Mode(NamedTuple):
    """Process or thread settings that change what an eager run would compute.

    Attributes:
        float32_precision: Of matrix products, by whichever of torch's two settings is in use.
        reductions: Whether half-precision products may be summed in half precision.
        attention: Which kernels `scaled_dot_product_attention` may choose from.
        convolution: Settings of cuDNN, where torch was built with CUDA.
    """

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, Any], ...]
    default_dtype: Any
    float32_precision: str
    deterministic: bool
    default_device: Any
    reductions: tuple[Any, ...] = ()
    attention: tuple[bool, ...] = ()
    convolution: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """One situation that a recording can serve.

    Attributes:
        structure: How the arguments are nested.
        leaves: What is known of each leaf.
        overlaps: Groups of tensors that share memory, and how.
        together: For each bucketed leaf the number of the axis it varies with.
        mode: Settings of the thread and process.
        training: Flags of all modules, in one entry when they agree.
    """

    structure: Structure
    leaves: tuple[TensorSpec | ValueSpec | ObjectSpec, ...]
    overlaps: tuple[tuple[int, ...], ...]
    together: tuple[int, ...]
    mode: Mode
    training: tuple[bool, ...]
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Looked up on every call, by the same object as a rule: hashed once.
        object.__setattr__(self, "_hash", hash(self._parts()))

    def _parts(self) -> tuple[object, ...]:
        return (
            self.structure, self.leaves, self.overlaps, self.together, self.mode, self.training,
        )  # fmt: skip

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Signature)
            and self._hash == other._hash
            and self._parts() == other._parts()
        )

    def __str__(self) -> str:
        """The leaves by name, in one line: `input_ids=int64[1, 16]@cpu, use_cache=True`."""
        parts = [
            f"{path or 'value'}={spec}"
            for path, spec in zip(self.structure.paths, self.leaves, strict=True)
            if not (isinstance(spec, ValueSpec) and spec.value is None)
        ]
        if self.mode.autocast:
            parts.append("autocast " + ", ".join(str(dtype) for _, dtype in self.mode.autocast))
        return ", ".join(parts)


def differences(wanted: Signature, have: Signature) -> list[str]:
    """Say in words in what `wanted` differs from `have`; empty when they are equal."""
    if wanted.structure != have.structure:
        if replace(wanted.structure, shared=have.structure.shared) == have.structure:
            return ["other lists, dicts or objects among the arguments are one and the same"]
        return ["the arguments are nested differently"]
    found = [
        f"{path or 'value'}: {new}{_layout(new, old)} instead of {old}"
        for path, new, old in zip(wanted.structure.paths, wanted.leaves, have.leaves, strict=True)
        if new != old
    ]
    for name, new, old in zip(Mode._fields, wanted.mode, have.mode, strict=True):
        if new != old:
            found.append(f"{name}: {new} instead of {old}")
    if wanted.overlaps != have.overlaps:
        found.append("the tensors share memory differently")
    if wanted.together != have.together:
        found.append("the bucketed sizes are equal and different elsewhere")
    if wanted.training != have.training:
        found.append("modules are in another training mode")
    return found


def _layout(new: object, old: object) -> str:
    """Name what two tensors differ in where their shapes and types are the same."""
    if isinstance(new, TensorSpec) and isinstance(old, TensorSpec) and str(new) == str(old):
        if new.is_parameter != old.is_parameter:
            return f" as a {'Parameter' if new.is_parameter else 'plain tensor'}"
        if new.requires_grad != old.requires_grad:
            return f" {'with' if new.requires_grad else 'without'} a gradient"
        return f" with strides {list(new.stride)}"
    return ""
