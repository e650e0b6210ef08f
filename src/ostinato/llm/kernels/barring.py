"""Logits in f32 with the tokens barred that a row's grammar does not let come next, in one pass.

The oracle is `sampling_allowed.bar`.

Shapes: B rows, V vocabulary, X words of 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.sampling_state import BOUND

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.sampling_state import SamplingState

_BLOCK = 4096
_BOUND: tl.constexpr = tl.constexpr(BOUND)


def barred(logits_BV: Tensor, state: SamplingState) -> Tensor:
    """Return a copy in f32, with -inf for barred tokens. A logit that is no number stays so.

    Capture:
        Safe.
    """
    rows, vocabulary = logits_BV.shape
    out_BV = torch.empty(rows, vocabulary, dtype=torch.float32, device=logits_BV.device)
    _bar[(-(-vocabulary // _BLOCK), rows)](
        logits_BV,
        state.allowed_BX,
        state.whole_BF,
        out_BV,
        vocabulary,
        logits_BV.stride(0),
        state.allowed_BX.stride(0),
        W=state.whole_BF.stride(0),
        BLOCK=_BLOCK,
        num_warps=8,
    )
    return out_BV


@triton.jit
def _bar(
    logits: tl.tensor,
    allowed: tl.tensor,
    whole: tl.tensor,
    out: tl.tensor,
    vocabulary: tl.tensor,
    logits_stride: tl.tensor,
    allowed_stride: tl.tensor,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(1).to(tl.int64)
    v_N = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_there_N = v_N < vocabulary
    x_N = tl.load(logits + row * logits_stride + v_N, mask=is_there_N, other=0.0).to(tl.float32)
    if tl.load(whole + row * W + _BOUND) != 0:
        word_N = tl.load(allowed + row * allowed_stride + v_N // 32, mask=is_there_N, other=0)
        is_barred_N = (word_N >> (v_N % 32)) & 1 == 0
        x_N = tl.where(is_barred_N & (x_N == x_N), float("-inf"), x_N)
    tl.store(out + row * vocabulary + v_N, x_N, mask=is_there_N)
