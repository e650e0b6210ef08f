"""Recognise a call that came before, without describing it again.

Describing a call costs microseconds per tensor; comparing it with one that was described costs a
fraction of one, because torch has that comparison in C++ (its compiler guards every call with it).
A memo can only say "exactly as then"; any doubt sends the call to `fitting.py`, which describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from ostinato.graphs.signature import ValueSpec
from ostinato.graphs.signing import default_device, leaf_spec, span_bytes

try:
    from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
except ImportError:  # pragma: no cover - private to torch.compile, so it may go away
    TensorGuards = None  # type: ignore[assignment, misc]

# A private constructor that is called in another way crashes the process, so only where it was
# tried.
_IS_KNOWN = TensorGuards is not None and torch.__version__.startswith(("2.11.", "2.12.", "2.13."))

_matmul_precision = torch._C._get_float32_matmul_precision
_inference = torch.is_inference_mode_enabled
_modes = torch._C._len_torch_function_stack

Outcome = TypeVar("Outcome")


class Memo(Generic[Outcome]):
    """What one call looked like: its tensors, its values, and the settings round it.

    Args:
        leaves: Leaves of a call whose tensors share no memory.
        training: The training flags of that call.
        outcome: What `fitting.py` made of it.

    Attributes:
        same_tensors: Takes the tensors of another call; True if they are as those were.
        settings: What to ask of torch, and the answer of then.
        has_modes: Whether a function mode was entered.
    """

    __slots__ = (
        "_at", "_device", "_is_one", "_only_tensors", "_spans", "_training", "_values",
        "has_modes", "outcome", "same_tensors", "settings",
    )  # fmt: skip

    def __init__(
        self, leaves: Sequence[object], training: tuple[bool, ...], outcome: Outcome
    ) -> None:
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._only_tensors = len(tensors) == len(leaves)
        self._is_one = len(tensors) <= 1
        # Bound methods keep their guards alive.
        self.same_tensors = _guards(tensors).check if tensors else _nothing_to_compare
        self._spans = [span_bytes(tensor) for tensor in tensors]
        self._values = [
            (i, _kept(leaf), leaf_spec(leaf, grad=False))
            for i, leaf in enumerate(leaves)
            if not isinstance(leaf, Tensor)
        ]
        self._training = training
        self.settings: tuple[tuple[Callable[[], object], object], ...] = (
            (GlobalStateGuard().check, True),
            (_inference, _inference()),
            (_matmul_precision, _matmul_precision()),
            (_modes, _modes()),
        )
        self.has_modes = _modes() > 0  # a default device is one of them
        self._device = default_device()
        self.outcome = outcome

    def holds(self, leaves: Sequence[object], training: tuple[bool, ...]) -> bool:
        """Whether this call is exactly as that one was."""
        tensors = leaves if self._only_tensors else [leaves[i] for i in self._at]
        if not self.same_tensors(*tensors):
            return False
        for i, value, spec in self._values:
            if leaves[i] is not value and leaf_spec(leaves[i], grad=False) != spec:
                return False
        if training != self._training:
            return False
        for ask, answer in self.settings:
            if ask() != answer:
                return False
        if self.has_modes and default_device() != self._device:
            return False
        return self._is_one or not self._share_memory(tensors)

    def are_apart(self, leaves: Sequence[object]) -> bool:
        """Whether the tensors of a call that is otherwise alike share no memory, as then."""
        return self._is_one or not self._share_memory([leaves[i] for i in self._at])

    def _share_memory(self, tensors: Sequence[Any]) -> bool:
        spans = self._spans
        if len(tensors) == 2:
            first, second = tensors[0].data_ptr(), tensors[1].data_ptr()
            return bool(first < second + spans[1] and second < first + spans[0])
        starts = [tensor.data_ptr() for tensor in tensors]
        end = 0
        for start, span in sorted(zip(starts, spans, strict=True)):
            if start < end:
                return True
            end = start + span
        return False


def _nothing_to_compare() -> bool:
    return True


def _guards(tensors: Sequence[Tensor]) -> Any:
    # Without the sizes written out, the constructor crashes the process.
    return TensorGuards(
        *tensors,
        dynamic_dims_sizes=cast(Any, [list(tensor.shape) for tensor in tensors]),
        dynamic_dims_strides=cast(Any, [list(tensor.stride()) for tensor in tensors]),
    )


_NOTHING = object()


def _kept(leaf: object) -> object:
    """The leaf itself if it may be kept and compared by identity."""
    return leaf if isinstance(leaf_spec(leaf, grad=False), ValueSpec) else _NOTHING


def try_memo(
    leaves: Sequence[object], training: tuple[bool, ...], outcome: Outcome
) -> Memo[Outcome] | None:
    """Return a memo of a call, or None where torch lacks what it needs or cannot guard the call."""
    if not _IS_KNOWN:
        return None
    try:
        memo = Memo(leaves, training, outcome)
        return memo if memo.holds(leaves, training) else None
    except (RuntimeError, TypeError, SystemError):
        return None
