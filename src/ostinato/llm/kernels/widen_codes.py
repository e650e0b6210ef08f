"""Codes of one byte become a matrix of bfloat16, for the library, which multiplies no codes.

A prompt of many tokens is multiplied by the library, and each of its matrices becomes numbers
first. torch's own kernel for that runs at a quarter of the memory's bandwidth, because each code
goes through float32 by itself; this one is as fast as it can read a byte and write two.

The numbers are those of the codes, exactly, without their scale: a product is scaled when it is
summed up, and nothing is rounded twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.decoding_codes import numbers_of

if TYPE_CHECKING:
    from torch import Tensor

_OLDEST = (8, 9)
"""A float8 is converted by an instruction that came with it."""
_TOGETHER = tl.constexpr(8)
_BLOCK, _WARPS = 4096, 4


def can_widen(codes: Tensor, number: torch.dtype) -> bool:
    """Return whether `widen_codes` can make these codes numbers of a type."""
    return (
        codes.is_cuda
        and number == torch.bfloat16
        and torch.cuda.get_device_capability(codes.device) >= _OLDEST
    )


def widen_codes(codes: Tensor, number: torch.dtype = torch.bfloat16) -> Tensor:
    """Return what the codes are as numbers; see `widen_codes_plain`.

    Args:
        codes: int8 or float8_e4m3fn, contiguous, none of them NaN.

    Capture:
        Safe.
    """
    numbers = torch.empty_like(codes, dtype=number)
    size = codes.numel()
    _widen[(triton.cdiv(size, _BLOCK),)](codes, numbers, size, BLOCK=_BLOCK, num_warps=_WARPS)
    return numbers


def widen_codes_plain(codes: Tensor, number: torch.dtype = torch.bfloat16) -> Tensor:
    """Do the same in plain torch."""
    return codes.to(number)


@triton.jit
def _widen(codes: tl.tensor, numbers: tl.tensor, size: tl.tensor, BLOCK: tl.constexpr) -> None:
    # A thread takes eight codes in a row, which are one store of 16 bytes. By itself the compiler
    # would load sixteen, and exchange them between threads.
    inside = tl.max_contiguous(tl.arange(0, BLOCK), _TOGETHER)
    at = tl.program_id(0).to(tl.int64) * BLOCK + inside
    is_there = at < size
    these = tl.load(codes + at, mask=is_there, eviction_policy="evict_first")
    tl.store(numbers + at, numbers_of(these, numbers.dtype.element_ty), mask=is_there)
