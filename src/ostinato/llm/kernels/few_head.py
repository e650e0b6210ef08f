"""The norm, the output head, and who leads in it: one launch for one row that takes the best.

A product with one row is a stream of weights (`few_rows.py`), and the head is the longest of all.
So there are as many programs as run at once, each with every so many rows of the head, and each
asks for its next rows before it sums up these. The first it asks for before the wait, and its norm
it makes itself.

Shapes: V vocabulary, E hidden, P programs; in a program N rows of the head at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.few_rows import load_normed, load_row, load_weights, sum_products
from ostinato.llm.kernels.head_tiles import Leaders
from ostinato.llm.kernels.racing import NOBODY
from ostinato.llm.kernels.tiled_product_add import NextNorm

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class FewHeadPlan:
    """How the product is cut and compiled.

    Attributes:
        outputs: Rows of the head a program takes at a time.
        chunk: Columns taken at a time, a power of two.
        programs: How many there are.
        is_spread: As in `FewPlan`.
    """

    outputs: int
    chunk: int
    warps: int
    programs: int
    is_spread: bool = False


def few_head(
    x_1E: Tensor, norm: NextNorm, weight_VE: Tensor, *, plan: FewHeadPlan, is_early: bool
) -> Leaders:
    """Return who leads among the tokens of each program; they are not tiles, nor in a row.

    Args:
        x_1E: Contiguous, not normed yet.
        weight_VE: Contiguous, of the same dtype.

    Capture:
        Safe.
    """
    vocabulary, size = weight_VE.shape
    programs = min(plan.programs, triton.cdiv(vocabulary, plan.outputs))
    best_1P = torch.empty(1, programs, dtype=torch.float32, device=x_1E.device)
    token_1P = torch.empty(1, programs, dtype=torch.int32, device=x_1E.device)
    _head[(programs,)](
        x_1E,
        norm.weight,
        weight_VE,
        best_1P,
        token_1P,
        vocabulary,
        norm.eps,
        E=size,
        N=plan.outputs,
        CHUNK=plan.chunk,
        SPREAD=plan.outputs if plan.is_spread else 1,
        EARLY=is_early,
        num_warps=plan.warps,
        num_stages=1,
        **launching(is_early=is_early),
    )
    return Leaders(best_1P, token_1P, best_1P, token_1P)


@triton.jit(do_not_specialize=("vocabulary",))
def _head(
    x: tl.tensor,
    norm: tl.tensor,
    weight: tl.tensor,
    best: tl.tensor,
    token: tl.tensor,
    vocabulary: tl.tensor,
    eps: tl.tensor,
    E: tl.constexpr,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
    SPREAD: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    apart = tl.num_programs(0) * N
    token_N = program * N + tl.arange(0, N)
    last = vocabulary - 1
    weights = load_weights(weight, tl.minimum(token_N, last), E, CHUNK)
    norm_weights = load_row(norm, E, CHUNK, SPREAD)
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    x_row, scale = load_normed(x, norm_weights, eps, E, CHUNK, SPREAD)
    best_N = tl.full((N,), float("-inf"), tl.float32)
    first_N = tl.full((N,), NOBODY, tl.int32)
    is_broken_N = tl.zeros((N,), tl.int32)
    for start in range(program * N, vocabulary, apart):
        token_N = start + tl.arange(0, N)
        ahead = load_weights(weight, tl.minimum(token_N + apart, last), E, CHUNK)
        logit_N = sum_products(weights, x_row, E, CHUNK, SPREAD) * scale
        # Rounded, as logits that are written are.
        logit_N = logit_N.to(weight.dtype.element_ty).to(tl.float32)
        is_broken_N |= (logit_N != logit_N).to(tl.int32)
        # Past the last token its row comes again, with higher numbers: the lowest of equals leads.
        leads_N = logit_N > best_N
        best_N = tl.where(leads_N, logit_N, best_N)
        first_N = tl.where(leads_N, token_N, first_N)
        weights = ahead
    top = tl.max(best_N, 0)
    first = tl.min(tl.where(best_N == top, first_N, NOBODY), 0)
    is_broken = tl.max(is_broken_N, 0) > 0
    tl.store(best + program, tl.where(is_broken, float("nan"), top))
    tl.store(token + program, first)
