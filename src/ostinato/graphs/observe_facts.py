"""Python functions of torch by which a run asks, or changes, what a key does not hold of a tensor.

Whether an input has a gradient, is a view or lies behind others in its storage: the static twin of
a recording answers for itself, not for the tensor of the next call. And a gradient that is set, or
memory exchanged by `.data =`, happens to the twin alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

_FACTS = (
    "_backward_hooks", "_base", "_version", "grad", "grad_fn", "is_leaf", "output_nr",
    "retains_grad",
)  # fmt: skip
_ASKING = ("_is_view", "is_inference", "is_pinned", "is_shared", "storage_offset")
_CHANGING = ("register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad",
             "share_memory_")  # fmt: skip
_SET = ("_backward_hooks", "_grad", "data", "grad", "requires_grad")

ASKED: dict[Any, str] = {
    **{getattr(Tensor, name).__get__: f"Tensor.{name}" for name in _FACTS},
    **{getattr(Tensor, name): f"Tensor.{name}" for name in _ASKING},
}
"""Functions that answer with a fact which is no part of a key."""

CHANGED: dict[Any, str] = {
    **{getattr(Tensor, name).__set__: f"Tensor.{name} =" for name in _SET},
    **{getattr(Tensor, name): f"Tensor.{name}" for name in _CHANGING},
}
"""Functions that change the Python side of a tensor."""

SETS_DATA: Callable[..., Any] = Tensor.data.__set__  # type: ignore[attr-defined]
SETS_REQUIRES_GRAD: tuple[Any, ...] = (Tensor.requires_grad_, Tensor.requires_grad.__set__)  # type: ignore[attr-defined]
