"""Do a replay and an eager run agree? Used when a recording is made, and by shadow replays."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ostinato.graphs.lease import Lease
from ostinato.graphs.signing import value_spec

# Largest difference allowed, as a share of the largest eager value. The same kernels on the same
# shapes differ only through atomics; a padded run may choose other kernels, so these leave room
# for one rounding of the dtype along a long sum, and not for a row that should not have been there.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 4e-2,
    torch.complex64: 1e-3,
    torch.complex128: 1e-9,
}


def disagreement(
    replayed: Sequence[object], eager: Sequence[object], paths: Sequence[str]
) -> str | None:
    """Return where and by how much two results differ, or None when they agree.

    Waits for the device. Whole numbers and booleans must be equal; floats may differ by a rounding.
    """
    for mine, theirs, path in zip(replayed, eager, paths, strict=True):
        mine = mine.get() if isinstance(mine, Lease) else mine
        found = _difference(mine, theirs)
        if found:
            return f"{path or 'the result'}: {found}"
    return None


def _difference(mine: object, theirs: object) -> str | None:
    if not (isinstance(mine, Tensor) and isinstance(theirs, Tensor)):
        return None if _same_value(mine, theirs) else f"{mine!r} replayed, {theirs!r} eager"
    if mine.shape != theirs.shape:
        return f"shape {list(mine.shape)} replayed, {list(theirs.shape)} eager"
    if mine.dtype != theirs.dtype:
        return f"{mine.dtype} replayed, {theirs.dtype} eager"
    if mine.layout is not torch.strided or mine.numel() == 0:
        return None
    if mine.dtype not in _TOLERANCE:
        differ = int((_as_bytes(mine) != _as_bytes(theirs)).any(1).sum())
        return f"{differ} of {mine.numel()} values differ" if differ else None
    return _float_difference(mine, theirs)


def _as_bytes(tensor: Tensor) -> Tensor:
    """Return the elements as rows of bytes: torch cannot compare each of its types."""
    return tensor.reshape(-1).contiguous().view(torch.uint8).view(tensor.numel(), -1)


def other_layout(
    recorded: Sequence[object], eager: Sequence[object], paths: Sequence[str]
) -> str | None:
    """Return where a recorded run made a tensor with other strides than an eager one, or None."""
    for mine, theirs, path in zip(recorded, eager, paths, strict=True):
        if not (isinstance(mine, Tensor) and isinstance(theirs, Tensor)):
            continue
        if mine.shape == theirs.shape and _steps(mine) != _steps(theirs):
            strides = f"strides {list(mine.stride())} recorded, {list(theirs.stride())} eager"
            return f"{path or 'the result'}: {strides}"
    return None


def _steps(tensor: Tensor) -> list[int]:
    """Return the strides that matter: no step is ever taken along a dimension of one."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return []
    shape, stride = tensor.shape, tensor.stride()
    return [step for size, step in zip(shape, stride, strict=True) if size > 1]


def _same_value(mine: object, theirs: object) -> bool:
    return mine is theirs or value_spec(mine) == value_spec(theirs)


def _float_difference(mine: Tensor, theirs: Tensor) -> str | None:
    wide = torch.complex128 if mine.is_complex() else torch.float64
    a, b = mine.to(wide), theirs.to(wide)
    scale = torch.where(torch.isfinite(b), b, 0).abs().max()
    close = torch.isclose(
        a, b, rtol=0.0, atol=float(scale) * _TOLERANCE[mine.dtype], equal_nan=True
    )
    if bool(close.all()):
        return None
    worst = (
        torch.where(close, 0, (a - b).abs()).nan_to_num(nan=float("inf"), posinf=float("inf")).max()
    )
    return f"off by {float(worst):.3g} where the largest value is {float(scale):.3g}"
