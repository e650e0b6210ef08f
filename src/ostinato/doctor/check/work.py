"""What one call would cost a GPU: kernels, bytes, floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from ostinato.graphs.aten_calls import base_name

_KERNELS = {
    # By hand, from how torch composes them; not counted on a GPU. What follows is called inferred.
    "sort": 3, "topk": 2, "multinomial": 6, "nonzero": 4, "_unique2": 8, "masked_select": 5,
    "index_put_": 2, "index_put": 2, "cumsum": 1, "native_batch_norm": 2, "convolution": 2,
    "_scaled_dot_product_attention_math": 6, "randperm": 4, "linalg_inv_ex": 4, "argsort": 3,
    "native_group_norm": 3, "_fft_r2c": 2, "_fft_c2c": 2, "_local_scalar_dense": 1,
    "repeat_interleave": 3,
}  # fmt: skip
_NONE = frozenset(
    {"empty", "empty_strided", "empty_like", "new_empty", "empty_permuted", "lift_fresh",
     "detach_", "resize_"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """One call.

    Attributes:
        kernels: Launches, from a table of the calls that start several; a copy counts as one.
        moved_bytes: Bytes of the tensors that it takes and makes.
        is_low_precision: Whether its products run at the rate of 16-bit numbers.
    """

    op: str
    kernels: int
    moved_bytes: int
    flops: int
    is_low_precision: bool


def work_of(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    taken: Sequence[Tensor],
    made: Sequence[Tensor],
) -> Work:
    """Return what a call that is no view would cost."""
    name = base_name(func)
    taken_ids = {id(tensor) for tensor in taken}
    new = [tensor for tensor in made if id(tensor) not in taken_ids]
    moved = 0 if name in _NONE else sum(_bytes(tensor) for tensor in (*taken, *new))
    return Work(
        op=name,
        kernels=0 if name in _NONE else _KERNELS.get(name, 1),
        moved_bytes=moved,
        flops=_flops(func, args, kwargs, made),
        is_low_precision=any(t.dtype in (torch.float16, torch.bfloat16) for t in taken),
    )


def _bytes(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    # What is expanded is read once: only the elements that lie in memory count.
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(int(size) for size in sizes) * tensor.element_size()


def _flops(func: OpOverload, args: Any, kwargs: Any, made: Sequence[Tensor]) -> int:
    formula = flop_registry.get(func._overloadpacket)
    if formula is None or not made:
        return 0
    out = made[0] if len(made) == 1 else tuple(made)
    try:
        return int(formula(*args, **kwargs, out_val=out))
    except (TypeError, ValueError, AssertionError, IndexError):
        return 0  # an estimate goes on without the one call whose formula does not fit
