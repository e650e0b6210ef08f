"""Does a function compute otherwise at another size? Then one recording cannot serve both.

Looked for on the runs with fake tensors: what the code calls, and with which numbers, must be the
same at all sizes that share a bucket. Sets of calls are compared, not their order: a loop over the
rows calls the same at each size. Calls are seen where the code makes them, because below that torch
may choose kernels by size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

Calls = frozenset[str]

# Whole numbers are operands here; elsewhere they are sizes, dimensions and positions.
_ARITHMETIC = frozenset(
    {
        "add", "sub", "mul", "div", "true_divide", "truediv", "floor_divide", "floordiv", "pow",
        "remainder", "mod", "eq", "ne", "lt", "le", "gt", "ge", "fill_", "masked_fill", "clamp",
        "radd", "rsub", "rmul", "rdiv", "rtruediv", "rfloordiv", "rpow",
    }
)  # fmt: skip
_COUNT = frozenset({"arange", "range", "linspace", "logspace"})


class CallSet(TorchFunctionMode):
    """Collects the calls of torch that a run makes, each with its numbers: "mul(2)"."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        name = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
        if name not in ("__get__", "size", "dim", "__len__", "numel"):
            self.calls.add(f"{name}({', '.join(_numbers(name.strip('_'), args, kwargs))})")
        return func(*args, **kwargs)


def _numbers(name: str, args: Any, kwargs: dict[str, Any]) -> list[str]:
    if name in _COUNT:
        return []
    found = [repr(value) for value in args if _is_operand(name, value)]
    return found + [f"{k}={value!r}" for k, value in kwargs.items() if _is_operand(name, value)]


def _is_operand(name: str, value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return name in _ARITHMETIC or f"{name}_" in _ARITHMETIC
    return isinstance(value, bool | float | complex | torch.dtype)


def branch(
    buckets: Sequence[Sequence[int]], runs: Sequence[tuple[Sequence[int], Calls]]
) -> str | None:
    """Say at which two sizes of one bucket the calls differ; None if they do at none.

    Args:
        buckets: Of each axis the recorded sizes, ascending; empty means that one serves all.
        runs: Sizes of the axes that were tried, with the calls made; the first is the real one.
    """
    real = runs[0][0]
    for axis, sizes in enumerate(buckets):
        alone = [
            (tried[axis], calls)
            for tried, calls in runs
            if all(size == tried[k] for k, size in enumerate(real) if k != axis)
        ]
        found = _branch_of_axis(sizes, alone)
        if found:
            return found
    return None


def _branch_of_axis(buckets: Sequence[int], runs: Sequence[tuple[int, Calls]]) -> str | None:
    first: dict[int, tuple[int, Calls]] = {}
    for size, calls in runs:
        if size == 1:  # a kind of its own
            continue
        there, known = first.setdefault(bisect_left(buckets, size), (size, calls))
        if calls != known:
            return f"at size {size} it {_said(calls, known)}, at size {there} {_said(known, calls)}"
    return None


def _said(calls: Calls, others: Calls) -> str:
    only = sorted(calls - others)
    return f"calls {', '.join(only[:2])}" if only else "does not"
