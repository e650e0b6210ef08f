"""The fused kernels: the sums and products of torch's own, each rounded where torch rounds it.

Nothing here is contracted (a product and a sum as one rounding), nothing reassociated and nothing
approximated: what differs from the plain calls is the number of launches. As operators of torch
they can be recorded on a CPU too, where Triton's interpreter runs them.

Shapes: B rows, H heads of queries, G of keys, Q tokens, D head size, L cache columns, N elements,
R rows of a norm, E its size. All numbers are float32, bf16 or fp16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

_BLOCK = 1024
EXACT: dict[str, Any] = {"enable_fp_fusion": False}
"""How each kernel is compiled: no product and sum become one rounding."""
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

_LIBRARY = torch.library.Library("ostinato_hf", "FRAGMENT")
_SCHEMAS = (
    "square(Tensor x, Tensor? added, Tensor(a!)? total, Tensor(b!) squared) -> ()",
    "scale(Tensor x, Tensor mean, Tensor weight, float eps, Tensor(a!) out) -> ()",
    "gate(Tensor gate, Tensor up, Tensor(a!) out) -> ()",
    "turn(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor(a!) q_out, Tensor(b!) k_out) -> ()",
    (
        "turn_and_keep(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, Tensor column, "
        "Tensor(a!) q_out, Tensor(b!) keys, Tensor(c!) values) -> ()"
    ),
)


def start(kernel: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> None:
    """Launch the kernel of this name on tensors by the names of its schema.

    Capture:
        Safe, once it has been compiled for such tensors.
    """
    none_added = {"added": None, "total": None} if kernel == "square" else {}
    with torch.cuda.device_of(next(iter(tensors.values()))):  # Triton launches on the current one
        getattr(torch.ops.ostinato_hf, kernel).default(**{**none_added, **tensors, **numbers})


def _square(x: Tensor, added: Tensor | None, total: Tensor | None, squared: Tensor) -> None:
    count = x.numel()
    if count:
        _square_kernel[(triton.cdiv(count, _BLOCK),)](
            x,
            x if added is None else added,
            x if total is None else total,
            squared,
            count,
            ADDS=added is not None,
            BLOCK=_BLOCK,
            **EXACT,
        )


def _scale(x: Tensor, mean: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    size = x.shape[-1]
    rows = x.numel() // max(size, 1)
    if rows:
        _scale_kernel[(rows, triton.cdiv(size, _BLOCK))](
            x, mean, weight, eps, out, size, BLOCK=_BLOCK, **EXACT
        )


def _gate(gate: Tensor, up: Tensor, out: Tensor) -> None:
    count = gate.numel()
    if count:
        _gate_kernel[(triton.cdiv(count, _BLOCK),)](gate, up, out, count, BLOCK=_BLOCK, **EXACT)


def _turn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, q_out: Tensor, k_out: Tensor) -> None:
    _start_turn(q, k, k, cos, sin, None, q_out, k_out, k_out)


def _turn_and_keep(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    column: Tensor,
    q_out: Tensor,
    keys: Tensor,
    values: Tensor,
) -> None:
    _start_turn(q, k, v, cos, sin, column, q_out, keys, values)


def _start_turn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    column: Tensor | None,
    q_out: Tensor,
    keys: Tensor,
    values: Tensor,
) -> None:
    rows, heads, tokens, size = q.shape
    kept = 0 if column is None else k.shape[1]
    programs = (rows * tokens, heads + k.shape[1] + kept)
    if not (programs[0] and programs[1] and size):
        return
    _turn_kernel[programs](
        q, k, v, cos, sin, q if column is None else column, q_out, keys, values,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        *_steps(cos), *_steps(sin),
        *q_out.stride()[:3], *keys.stride()[:3], *values.stride()[:3],
        tokens, heads, k.shape[1], keys.shape[2],
        D=size,
        PAD=triton.next_power_of_2(size // 2),
        KEEPS=column is not None,
        num_warps=1,
        **EXACT,
    )  # fmt: skip


def _steps(angle: Tensor) -> tuple[int, int]:
    """Strides of rows and tokens, 0 where one angle serves all."""
    rows, _, tokens, _ = angle.shape
    return angle.stride(0) if rows > 1 else 0, angle.stride(2) if tokens > 1 else 0


@triton.jit  # type: ignore[untyped-decorator]
def _square_kernel(
    x: tl.tensor,
    added: tl.tensor,
    total: tl.tensor,
    squared: tl.tensor,
    count: tl.tensor,
    ADDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_there = i < count
    value = tl.load(x + i, mask=is_there, other=0.0)
    if ADDS:
        more = tl.load(added + i, mask=is_there, other=0.0)
        value = (value.to(tl.float32) + more.to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + i, value, mask=is_there)
    wide = value.to(tl.float32)
    tl.store(squared + i, wide * wide, mask=is_there)


@triton.jit  # type: ignore[untyped-decorator]
def _scale_kernel(
    x: tl.tensor,
    mean: tl.tensor,
    weight: tl.tensor,
    eps: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = e < size
    at = row * size + e
    scale = tl.rsqrt(tl.load(mean + row) + eps)
    wide = tl.load(x + at, mask=is_there, other=0.0).to(tl.float32) * scale
    narrow = wide.to(out.dtype.element_ty).to(tl.float32)
    by = tl.load(weight + e, mask=is_there, other=0.0).to(tl.float32)
    tl.store(out + at, (by * narrow).to(out.dtype.element_ty), mask=is_there)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_kernel(
    gate: tl.tensor, up: tl.tensor, out: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr
) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_there = i < count
    x = tl.load(gate + i, mask=is_there, other=0.0).to(tl.float32)
    # Torch's exponential and division; Triton's own are quicker and round otherwise.
    power = tl.exp(-x) if _INTERPRETED else libdevice.exp(-x)
    bent = tl.div_rn(x, 1.0 + power).to(out.dtype.element_ty).to(tl.float32)
    by = tl.load(up + i, mask=is_there, other=0.0).to(tl.float32)
    tl.store(out + i, (bent * by).to(out.dtype.element_ty), mask=is_there)


@triton.jit  # type: ignore[untyped-decorator]
def _turn_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    column: tl.tensor,
    q_out: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    q_b: tl.tensor, q_h: tl.tensor, q_q: tl.tensor,
    k_b: tl.tensor, k_h: tl.tensor, k_q: tl.tensor,
    v_b: tl.tensor, v_h: tl.tensor, v_q: tl.tensor,
    cos_b: tl.tensor, cos_q: tl.tensor,
    sin_b: tl.tensor, sin_q: tl.tensor,
    out_b: tl.tensor, out_h: tl.tensor, out_q: tl.tensor,
    keys_b: tl.tensor, keys_h: tl.tensor, keys_q: tl.tensor,
    values_b: tl.tensor, values_h: tl.tensor, values_q: tl.tensor,
    tokens: tl.tensor,
    heads: tl.tensor,
    kept: tl.tensor,
    columns: tl.tensor,
    D: tl.constexpr,
    PAD: tl.constexpr,
    KEEPS: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    b, t = row // tokens, row % tokens
    head = tl.program_id(1)
    to = t
    is_inside = True
    if KEEPS:
        to = tl.load(column)
        is_inside = (to >= 0) & (to < columns)
    from_cos = cos + b * cos_b + t * cos_q
    from_sin = sin + b * sin_b + t * sin_q
    if head < heads:
        source = q + b * q_b + head * q_h + t * q_q
        target = q_out + b * out_b + head * out_h + t * out_q
        _turn_head(source, target, from_cos, from_sin, True, D, PAD)
    elif head < heads + kept:
        source = k + b * k_b + (head - heads) * k_h + t * k_q
        target = keys + b * keys_b + (head - heads) * keys_h + to * keys_q
        _turn_head(source, target, from_cos, from_sin, is_inside, D, PAD)
    else:
        source = v + b * v_b + (head - heads - kept) * v_h + t * v_q
        target = values + b * values_b + (head - heads - kept) * values_h + to * values_q
        d = tl.arange(0, 2 * PAD)
        is_there = d < D
        tl.store(target + d, tl.load(source + d, mask=is_there), mask=is_there & is_inside)


@triton.jit  # type: ignore[untyped-decorator]
def _turn_head(
    source: tl.tensor,
    target: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    is_inside: tl.tensor,
    D: tl.constexpr,
    PAD: tl.constexpr,
) -> None:
    HALF: tl.constexpr = D // 2
    number: tl.constexpr = target.dtype.element_ty
    c = tl.arange(0, PAD)
    is_there = c < HALF
    low = tl.load(source + c, mask=is_there, other=0.0).to(tl.float32)
    high = tl.load(source + HALF + c, mask=is_there, other=0.0).to(tl.float32)
    cos_low = tl.load(cos + c, mask=is_there, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + HALF + c, mask=is_there, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + c, mask=is_there, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + HALF + c, mask=is_there, other=0.0).to(tl.float32)
    # Each product is rounded to the number's own kind before the sum, as between torch's kernels.
    straight_low = (low * cos_low).to(number).to(tl.float32)
    straight_high = (high * cos_high).to(number).to(tl.float32)
    across_low = (-high * sin_low).to(number).to(tl.float32)
    across_high = (low * sin_high).to(number).to(tl.float32)
    tl.store(target + c, (straight_low + across_low).to(number), mask=is_there & is_inside)
    tl.store(target + HALF + c, (straight_high + across_high).to(number), mask=is_there & is_inside)


for _schema in _SCHEMAS:
    _LIBRARY.define(_schema)
for _name, _start in (
    ("square", _square),
    ("scale", _scale),
    ("gate", _gate),
    ("turn", _turn),
    ("turn_and_keep", _turn_and_keep),
):
    _LIBRARY.impl(_name, _start, "CompositeExplicitAutograd")
