"""Cached keys and values, brought from memory into the L2 before anyone loads them.

Attention of many rows reads as fast as memory gives, and the kernels between two of them hardly
read at all. So attention, when it is done, has the beginnings of the rows' keys and values in the
next layer fetched. That takes no registers and no shared memory, nobody waits for it, and what is
fetched may still be written: it is a hint.

A page lies in one piece, with all key heads: the programs of a row take turns at its pages.

Shapes: B rows, G key heads, D head size, P pages that a program has fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

# Pages of a row that one program has fetched at most, one for each thread of a warp.
_PAGES: tl.constexpr = tl.constexpr(32)
# What is fetched comes in pieces of so many bytes.
_PIECE = 16


def count_fetched(budget: int, rows: int, keys: Tensor) -> int:
    """Return how many cached tokens of each row, whole pages, so many bytes are enough for.

    Args:
        budget: Bytes of keys and values.
        keys: (pages, page_tokens, G, D) of one layer.
    """
    page_bytes = keys[0].numel() * keys.element_size()
    if page_bytes % _PIECE:
        return 0
    return budget // (2 * page_bytes * max(rows, 1)) * keys.shape[1]


@triton.jit
def _fetch(base: tl.tensor, offset_P: tl.tensor, wants_P: tl.tensor, BYTES: tl.constexpr) -> None:
    at_P = (base + offset_P).to(tl.int64, bitcast=True)
    tl.inline_asm_elementwise(
        """{
        .reg .pred wanted;
        setp.ne.b32 wanted, $2, 0;
        @wanted cp.async.bulk.prefetch.L2.global [$1], $3;
        mov.b32 $0, 0;
        }""",
        "=r,l,r,r",
        [at_P, wants_P.to(tl.int32), tl.full(at_P.shape, BYTES, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_pages(
    program: tl.tensor,
    programs: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    rows: tl.tensor,
    pages_stride: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
) -> None:
    """Have one program's share of the rows' cached tokens from `start` to `stop` fetched.

    Needs compute capability 9.0. A page must be a multiple of 16 bytes long.
    """
    SIZE: tl.constexpr = PAGE * G * D
    BYTES: tl.constexpr = SIZE * keys.dtype.element_ty.primitive_bitwidth // 8
    if stop > start:
        for pair in range(program, rows * G, programs):
            row = pair // G
            until = tl.minimum(tl.load(lengths + row).to(tl.int32), stop)
            page_P = start // PAGE + pair % G + tl.arange(0, _PAGES) * G
            wants_P = page_P * PAGE < until
            table = pages + row.to(tl.int64) * pages_stride
            at_P = tl.load(table + page_P, mask=wants_P, other=0).to(tl.int64) * SIZE
            _fetch(keys, at_P, wants_P, BYTES)
            _fetch(values, at_P, wants_P, BYTES)
