"""Sums of int8 codes times a token, in whole numbers: four products an instruction.

On its way through float32 a code takes three instructions. Here the numbers of the token become
whole too, of two bytes, and a word of four codes is multiplied with four bytes and summed up by one
instruction (dp4a): half an instruction for each code.

The codes' side is exact. The token is rounded, sixteen numbers together, those that a thread has of
a chunk: each is off by a 64000th of the largest of them at most. bfloat16 has rounded it to a 512th
of itself before, and rounds the sum to as much.

Shapes: N rows of the matrix, K columns. A word is four columns. Chunks cut K.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ostinato.llm.kernels.columns import eight, four
from ostinato.llm.kernels.decoding_codes import COMPILED

_STEPS = tl.constexpr(32000.0)
# Added to a number, it leaves the nearest whole one in the low bits, negative ones too: 1.5 * 2^23.
_WHOLE = tl.constexpr(12582912.0)
_NONE = tl.constexpr(1e-30)
_BYTES_APART = tl.constexpr("""{
    .reg .b32 first, second;
    prmt.b32 first, $2, $3, 0x5140;
    prmt.b32 second, $4, $5, 0x5140;
    prmt.b32 $0, first, second, 0x5410;
    prmt.b32 $1, first, second, 0x7632;
}""")


@triton.jit
def sum_words(words: tl.tuple, x: tl.tuple, K: tl.constexpr, CHUNK: tl.constexpr) -> Any:
    """Return the N sums over K.

    Args:
        words: Chunks of the matrix, (N, CHUNK / 4) int32, of four codes each.
        x: Two of each chunk, as `load_row` returns them with SPREAD 0.
    """
    sums = tl.zeros((words[0].shape[0], CHUNK // 16), tl.float32)
    for c in tl.static_range((K + CHUNK - 1) // CHUNK):
        numbers = eight(x[2 * c].to(tl.float32)) + eight(x[2 * c + 1].to(tl.float32))
        largest = tl.full((1, CHUNK // 16), _NONE, tl.float32)
        for i in tl.static_range(16):
            largest = tl.maximum(largest, tl.abs(numbers[i]), propagate_nan=tl.PropagateNan.ALL)
        per_step = _STEPS / largest
        of_four = four(words[c])
        low = tl.zeros((words[0].shape[0], CHUNK // 16), tl.int32)
        high = tl.zeros((words[0].shape[0], CHUNK // 16), tl.int32)
        for w in tl.static_range(4):
            lows, highs = _bytes_of(numbers, 4 * w, per_step)
            low = _add_products(of_four[w], lows, low, False)
            high = _add_products(of_four[w], highs, high, True)
        sums += (low + high * 256).to(tl.float32) * (largest / _STEPS)
    return tl.sum(sums, 1)


@triton.jit
def _whole(x: tl.tensor, per_step: tl.tensor) -> Any:
    """Return bits whose low 16 are the nearest whole number of steps."""
    return (x * per_step + _WHOLE).to(tl.int32, bitcast=True)


@triton.jit
def _bytes_of(numbers: tl.tuple, AT: tl.constexpr, per_step: tl.tensor) -> Any:
    """Return the low bytes of four numbers of steps as a word, and their high ones."""
    a = _whole(numbers[AT], per_step)
    b = _whole(numbers[AT + 1], per_step)
    c = _whole(numbers[AT + 2], per_step)
    d = _whole(numbers[AT + 3], per_step)
    if COMPILED:
        return tl.inline_asm_elementwise(
            _BYTES_APART,
            "=r,=r,r,r,r,r",
            [a, b, c, d],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    lows = (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24
    highs = (a >> 8 & 255) | (b >> 8 & 255) << 8 | (c >> 8 & 255) << 16 | (d >> 8 & 255) << 24
    return lows, highs


@triton.jit
def _add_products(
    codes: tl.tensor, others: tl.tensor, sums: tl.tensor, SIGNED: tl.constexpr
) -> Any:
    """Return the sums, and the products of four bytes added; the codes are signed in any case."""
    if COMPILED:
        if SIGNED:
            return tl.inline_asm_elementwise(
                "dp4a.s32.s32 $0, $1, $2, $3;",
                "=r,r,r,r",
                [codes, others, sums],
                dtype=tl.int32,
                is_pure=True,
                pack=1,
            )
        return tl.inline_asm_elementwise(
            "dp4a.s32.u32 $0, $1, $2, $3;",
            "=r,r,r,r",
            [codes, others, sums],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    for i in tl.static_range(4):
        other = (others << 24 - 8 * i) >> 24
        if not SIGNED:
            other = other & 255
        sums += ((codes << 24 - 8 * i) >> 24) * other
    return sums
