"""Norms of heads, the turn by positions, and the way into the cache, in one launch.

From the products of queries, keys and values side by side: queries go to a tensor of their own,
turned; keys, turned, and values go to the slots of their tokens.

Shapes: N tokens, H query heads, G key and value heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch.nn import functional

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous

if TYPE_CHECKING:
    from torch import Tensor

# Pairs that a program turns.
_PAIRS = 512


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The norms that Qwen3 has on each head's queries and keys."""

    q: Tensor
    k: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tokens of a step stand.

    Attributes:
        cos_NC, sin_NC: float32, C = D / 2: of each pair (i, i + C)'s angle.
        slots_N: int64, where keys and values go.
        keys, values: (pages, page_tokens, G, D) of one layer, contiguous.
    """

    cos_NC: Tensor
    sin_NC: Tensor
    slots_N: Tensor
    keys: Tensor
    values: Tensor


def turn_rows(
    qkv_NF: Tensor, heads: int, place: Place, norms: HeadNorms | None, *, is_early: bool
) -> Tensor:
    """Return the queries, (N, H, D), and write keys and values; see `turn_rows_plain`.

    Args:
        qkv_NF: (N, (H + 2 G) D), contiguous.

    Capture:
        Safe.
    """
    _, _, kv_heads, size = place.keys.shape
    rows = len(qkv_NF)
    q_NHD = qkv_NF.new_empty(rows, heads, size)
    pairs = triton.next_power_of_2(size // 2)
    block = max(_PAIRS // pairs, 1)
    _turn[(rows, triton.cdiv(heads + 2 * kv_heads, block))](
        qkv_NF,
        qkv_NF if norms is None else norms.q,
        qkv_NF if norms is None else norms.k,
        place.cos_NC,
        place.sin_NC,
        place.slots_N,
        q_NHD,
        place.keys,
        place.values,
        0.0 if norms is None else norms.eps,
        H=heads,
        G=kv_heads,
        D=size,
        C_PAD=pairs,
        BLOCK=block,
        HAS_NORMS=norms is not None,
        EARLY=is_early,
        num_warps=2,
        **launching(is_early=is_early),
    )
    return q_NHD


def turn_rows_plain(qkv_NF: Tensor, heads: int, place: Place, norms: HeadNorms | None) -> Tensor:
    """Do the same in plain torch, in the precision of `qkv_NF`."""
    _, _, kv_heads, size = place.keys.shape
    q, k, v = qkv_NF.unflatten(1, (-1, size)).split((heads, kv_heads, kv_heads), dim=1)
    if norms is not None:
        q, k = (
            functional.rms_norm(part, (size,), weight.to(part.dtype), norms.eps)
            for part, weight in ((q, norms.q), (k, norms.k))
        )
    for kept, new in ((place.keys, turned_plain(k, place)), (place.values, v)):
        kept.flatten(0, 1).index_copy_(0, place.slots_N, new.to(kept.dtype))
    return turned_plain(q, place)


def turned_plain(x_NHD: Tensor, place: Place) -> Tensor:
    """Turn each pair (i, i + C) by its angle."""
    cos, sin = place.cos_NC[:, None], place.sin_NC[:, None]
    low, high = x_NHD.chunk(2, dim=-1)
    turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
    return turned.to(x_NHD.dtype)


@triton.jit
def _turn(
    qkv: tl.tensor,
    q_norm: tl.tensor,
    k_norm: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slots: tl.tensor,
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    eps: tl.tensor,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    C_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_NORMS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    C: tl.constexpr = D // 2
    row = tl.program_id(0).to(tl.int64)
    head_B1 = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    c_1C = tl.arange(0, C_PAD)[None, :]
    is_there = (head_B1 < H + 2 * G) & (c_1C < C)
    is_q = is_there & (head_B1 < H)
    is_k = is_there & (head_B1 >= H) & (head_B1 < H + G)
    is_v = is_there & (head_B1 >= H + G)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    source = qkv + row * ((H + 2 * G) * D) + head_B1 * D + c_1C
    low = tl.load(source, mask=is_there, other=0.0).to(tl.float32)
    high = tl.load(source + C, mask=is_there, other=0.0).to(tl.float32)
    slot = tl.load(slots + row)
    cos_BC = tl.load(cos + row * C + c_1C, mask=c_1C < C, other=0.0)
    sin_BC = tl.load(sin + row * C + c_1C, mask=c_1C < C, other=0.0)
    cos_BC = tl.where(is_v, 1.0, cos_BC)
    sin_BC = tl.where(is_v, 0.0, sin_BC)
    if HAS_NORMS:
        square_B = tl.sum(low * low + high * high, 1)
        scale_B1 = tl.rsqrt(square_B / D + eps)[:, None]
        q_low = tl.load(q_norm + c_1C, mask=c_1C < C, other=0.0).to(tl.float32)
        q_high = tl.load(q_norm + C + c_1C, mask=c_1C < C, other=0.0).to(tl.float32)
        k_low = tl.load(k_norm + c_1C, mask=c_1C < C, other=0.0).to(tl.float32)
        k_high = tl.load(k_norm + C + c_1C, mask=c_1C < C, other=0.0).to(tl.float32)
        # As the models do: rounded between the norm and the turn.
        number: tl.constexpr = qkv.dtype.element_ty
        low_normed = (low * scale_B1 * tl.where(is_q, q_low, k_low)).to(number).to(tl.float32)
        high_normed = (high * scale_B1 * tl.where(is_q, q_high, k_high)).to(number).to(tl.float32)
        low = tl.where(is_v, low, low_normed)
        high = tl.where(is_v, high, high_normed)
    new_low = (low * cos_BC - high * sin_BC).to(q.dtype.element_ty)
    new_high = (high * cos_BC + low * sin_BC).to(q.dtype.element_ty)
    to_q = q + row * (H * D) + head_B1 * D + c_1C
    tl.store(to_q, new_low, mask=is_q)
    tl.store(to_q + C, new_high, mask=is_q)
    to_k = keys + (slot * G + head_B1 - H) * D + c_1C
    tl.store(to_k, new_low, mask=is_k)
    tl.store(to_k + C, new_high, mask=is_k)
    to_v = values + (slot * G + head_B1 - H - G) * D + c_1C
    tl.store(to_v, new_low, mask=is_v)
    tl.store(to_v + C, new_high, mask=is_v)
