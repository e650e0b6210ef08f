"""Codes of one byte become numbers, exactly, in few instructions.

A decode step converts every weight once per token, so what a conversion costs is a cost of the
step. Left to the compiler an int8 becomes a float32, and a float8 a bfloat16, on the unit that also
computes sines: 16 a clock on each processor, 1.9 ms for seven billion codes on an H200, where to
read them takes 1.6. So here a byte is put into the low bits of a large number, which makes it that
number plus the code, and the large number is taken away again; and float8 goes by way of float16
and float32. From int8 to bfloat16 the compiler knows a like way itself.

Every way is exact: bfloat16 has eight bits, and an int8 needs no more. Weights are never NaN.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

# The interpreter knows no assembly.
COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)

# With its top bit turned, a code is 0 to 255 and 128 too large; 0x4B000000 is 2^23 as a float32.
_INT8_TO_FLOAT32 = tl.constexpr("""{
    .reg .b32 turned;
    xor.b32 turned, $4, 0x80808080;
    prmt.b32 $0, turned, 0x4B000000, 0x7440;
    prmt.b32 $1, turned, 0x4B000000, 0x7441;
    prmt.b32 $2, turned, 0x4B000000, 0x7442;
    prmt.b32 $3, turned, 0x4B000000, 0x7443;
    sub.f32 $0, $0, 0f4B000080;
    sub.f32 $1, $1, 0f4B000080;
    sub.f32 $2, $2, 0f4B000080;
    sub.f32 $3, $3, 0f4B000080;
}""")
_FLOAT8_TO_FLOAT32 = tl.constexpr("""{
    .reg .b16 low, high, a, b, c, d;
    .reg .b32 ab, cd;
    mov.b32 {low, high}, $4;
    cvt.rn.f16x2.e4m3x2 ab, low;
    cvt.rn.f16x2.e4m3x2 cd, high;
    mov.b32 {a, b}, ab;
    mov.b32 {c, d}, cd;
    cvt.f32.f16 $0, a;
    cvt.f32.f16 $1, b;
    cvt.f32.f16 $2, c;
    cvt.f32.f16 $3, d;
}""")
_FLOAT8_TO_BFLOAT16 = tl.constexpr("""{
    .reg .b16 low, high, a, b, c, d;
    .reg .b32 ab, cd;
    .reg .f32 x, y;
    mov.b32 {low, high}, $2;
    cvt.rn.f16x2.e4m3x2 ab, low;
    cvt.rn.f16x2.e4m3x2 cd, high;
    mov.b32 {a, b}, ab;
    mov.b32 {c, d}, cd;
    cvt.f32.f16 x, a;
    cvt.f32.f16 y, b;
    cvt.rn.bf16x2.f32 $0, y, x;
    cvt.f32.f16 x, c;
    cvt.f32.f16 y, d;
    cvt.rn.bf16x2.f32 $1, y, x;
}""")


@triton.jit
def numbers_of(codes: tl.tensor, number: tl.constexpr) -> Any:
    """Return codes, none of which is NaN, as numbers of a type; also what are numbers already."""
    if not COMPILED:  # the interpreter would take an int8 for the bits of a bfloat16
        return codes.to(tl.float32).to(number)
    if codes.dtype == tl.int8 and number == tl.float32:
        return tl.inline_asm_elementwise(
            _INT8_TO_FLOAT32, "=f,=f,=f,=f,r", [codes], dtype=tl.float32, is_pure=True, pack=4
        )
    if codes.dtype == tl.float8e4nv and number == tl.float32:
        return tl.inline_asm_elementwise(
            _FLOAT8_TO_FLOAT32, "=f,=f,=f,=f,r", [codes], dtype=tl.float32, is_pure=True, pack=4
        )
    if codes.dtype == tl.float8e4nv and number == tl.bfloat16:
        return tl.inline_asm_elementwise(
            _FLOAT8_TO_BFLOAT16, "=r,=r,r", [codes], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    return codes.to(number)
