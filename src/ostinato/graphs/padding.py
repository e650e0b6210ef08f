"""How a tensor that is smaller than its bucket fills the recording's input, and poison for tests.

A recording reads the whole of its static input, so every call writes all of it: the real part is
the caller's tensor, the tail what `Buckets.fill` declares. A tail that is not rewritten holds rows
of an earlier, larger call. `fitting.py` calls `check_fill` when it describes a call, the runner
`pad_into` on every call and `cut` on every output that follows a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ostinato.errors import InternalError, UsageError
from ostinato.graphs.buckets import Fill

_LOUDEST = 1e4


def check_fill(dtype: torch.dtype, fill: Fill, path: str) -> None:
    """Refuse a fill that a tensor of this type cannot hold; `path` names it in the call.

    A number between two values of a floating type is rounded, as in eager code; one past the end
    of the type is not.

    Raises:
        UsageError: OST1004, such as -1 for uint8 or 0.5 for int64.
    """
    number = 0 if fill == "zero" else fill
    if isinstance(number, str) or _holds(dtype, number):
        return
    name = f"{path!r}" if path else "a tensor"
    raise UsageError(
        f"fill {fill!r} of {name} does not fit {_described(dtype)}",
        code="OST1004",
        remedy="pass a fill that this type can hold, or 'repeat-last'",
    )


def pad_into(
    static: Tensor, given: Tensor, dim: int, fill: Fill, dirty_from: int | None = None
) -> None:
    """Copy `given` into the front of `static` along `dim`, and fill the tail.

    `dirty_from` is the first index of the tail known to hold the fill already: after a call of 5
    rows with a constant fill it is 5, unless the recording writes its own input. None means that
    nothing is known. It saves work with a constant fill only.

    Capture:
        Safe. One copy and at most one fill, neither waits for the device. It belongs before a
        replay, though: recorded, it would freeze the real size.

    Raises:
        InternalError: OST1903, "repeat-last" of a tensor without a row to repeat.
    """
    rows = given.shape[dim]
    if fill == "repeat-last" and rows == 0:
        raise InternalError(
            "there is no last row to repeat in an empty tensor",
            code="OST1903",
            remedy="report this: an empty batch should have run eagerly",
        )
    static.narrow(dim, 0, rows).copy_(given)
    pad_tail(static, rows, dim, fill, dirty_from)


def pad_tail(
    static: Tensor, rows: int, dim: int, fill: Fill, dirty_from: int | None = None
) -> None:
    """Fill `static` from index `rows` of `dim` on, as `pad_into` does behind its copy.

    Capture:
        As `pad_into`.
    """
    size = static.shape[dim]
    if fill == "keep" or rows == size:
        return
    if fill == "repeat-last":
        # From the static side: `given` may be on another device or in pinned host memory.
        static.narrow(dim, rows, size - rows).copy_(static.narrow(dim, rows - 1, 1))
        return
    end = size if dirty_from is None else min(dirty_from, size)
    if end > rows:
        static.narrow(dim, rows, end - rows).fill_(0 if fill == "zero" else fill)


def poison(static: Tensor, dim: int, from_: int, *, seed: int = 0) -> None:
    """Overwrite `static` from index `from_` of `dim` on with finite garbage.

    Floating types get loud numbers whose squares stay finite, whole numbers are drawn from the real
    part (so an index stays a valid index), booleans are random. Poison comes before `pad_into`, not
    after: a declared constant may mean something, as the zeros of an attention mask do.

    Capture:
        Unsafe, and never needed there. The default generators are not drawn from.
    """
    tail = static.narrow(dim, from_, static.shape[dim] - from_)
    dice = torch.Generator(static.device).manual_seed(seed)
    if static.dtype == torch.bool:
        tail.copy_(_random(tail, dice) < 0.5)
    elif static.is_complex() or static.is_floating_point():
        tail.copy_(_noise(tail, dice))
    elif from_:
        rows = torch.randint(from_, (tail.shape[dim],), generator=dice, device=static.device)
        tail.copy_(static.index_select(dim, rows))
    else:
        tail.zero_()


def cut(output: Tensor, sizes: Mapping[int, int]) -> Tensor:
    """Return the front of `output`, `sizes` mapping dimensions to real sizes, as a view of it."""
    for dim, size in sizes.items():
        if output.shape[dim] != size:
            output = output.narrow(dim, 0, size)
    return output


def _random(like: Tensor, dice: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=dice, device=like.device)


def _noise(like: Tensor, dice: torch.Generator) -> Tensor:
    limits = torch.finfo(like.dtype)
    loud = min(_LOUDEST, math.sqrt(limits.max) / 2)
    size = loud * (0.5 + _random(like, dice) / 2)
    signed = torch.where(_random(like, dice) < 0.5, size, -size)
    return torch.complex(signed, signed.flip(0)) if like.is_complex() else signed


def _holds(dtype: torch.dtype, number: float) -> bool:
    if dtype == torch.bool:
        return number in (0, 1)
    if not (dtype.is_floating_point or dtype.is_complex):
        limits = torch.iinfo(dtype)
        return (
            math.isfinite(number) and number == int(number) and limits.min <= number <= limits.max
        )
    if dtype == torch.float4_e2m1fn_x2:
        return number == 0  # two values to a byte: torch can clear it, not fill it
    if math.isinf(number):
        return dtype.is_complex or _round_trip(dtype, number) == number
    limits_f = torch.finfo(dtype)
    return limits_f.min <= number <= limits_f.max


def _round_trip(dtype: torch.dtype, number: float) -> float:
    return torch.tensor(number, device="cpu").to(dtype).to(torch.float64).item()


def _described(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "torch.bool (False or True)"
    if dtype == torch.float4_e2m1fn_x2:
        return f"{dtype} (only 0)"
    if dtype.is_floating_point or dtype.is_complex:
        return f"{dtype} ({torch.finfo(dtype).min:g} to {torch.finfo(dtype).max:g})"
    return f"{dtype} (whole numbers from {torch.iinfo(dtype).min} to {torch.iinfo(dtype).max})"
