"""What stands between a row and its filtered draw, looked at by many programs at once.

For a row that takes the top k: all tokens that can be among them, in a short list. The k-th largest
of the tiles' largest logits is a bound: at least k tokens reach it, so none below it is one of the
k. For a row that takes the top of the mass alone: the whole mass, and how much of it lies above the
winner of the race over the whole vocabulary; mostly that says that the winner may stand.
`settling.py` goes on from there.

Masses are whole numbers, so no order of adding changes them.

Shapes: B rows, N tokens of a block, T tiles, S programs of a row, C places of each in the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.head_tiles import TILE, Leaders
from ostinato.llm.kernels.racing import NOBODY, coldness, odds, order
from ostinato.llm.sampling_state import MIN_P, TEMPERATURE, TOP_K, TOP_P

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_state import ResidentState

LISTED = 2048
"""Tokens that find room on a row's list."""
_MOST_SHARES, _BLOCK = 16, 2048

_TOP_K: tl.constexpr = tl.constexpr(TOP_K)
_TEMPERATURE: tl.constexpr = tl.constexpr(TEMPERATURE)
_TOP_P: tl.constexpr = tl.constexpr(TOP_P)
_MIN_P: tl.constexpr = tl.constexpr(MIN_P)


@dataclass(frozen=True, slots=True)
class Weighed:
    """What each program of a row found.

    Attributes:
        found_BS: int32, candidates for the top k; more than there are places if it found so many.
        token_BSC: int32, which they are.
        mass_BS: int64, mass of its share of the vocabulary.
        above_BS: int64, mass in it of tokens above the winner.
    """

    found_BS: Tensor
    token_BSC: Tensor
    mass_BS: Tensor
    above_BS: Tensor

    @classmethod
    def empty(cls, rows: int, vocabulary: int, device: torch.device) -> Weighed:
        """Make room for it; how many programs share a row follows from the vocabulary alone."""
        shares = min(triton.next_power_of_2(-(-vocabulary // _BLOCK)), _MOST_SHARES)
        mass = torch.empty(2, rows, shares, dtype=torch.int64, device=device)
        return cls(
            torch.empty(rows, shares, dtype=torch.int32, device=device),
            torch.empty(rows, shares, LISTED // shares, dtype=torch.int32, device=device),
            mass[0],
            mass[1],
        )


def weigh(logits_BV: Tensor, leaders: Leaders, state: ResidentState) -> Weighed:
    """Look at the rows that filter their draw; the others cost a program that ends at once.

    Capture:
        Safe.
    """
    rows, vocabulary = logits_BV.shape
    weighed = Weighed.empty(rows, vocabulary, logits_BV.device)
    tiles, (_, shares, places) = leaders.best_BT.shape[1], weighed.token_BSC.shape
    _weigh[(shares, rows)](
        logits_BV,
        leaders.best_BT,
        leaders.run_BT,
        leaders.runner_BT,
        weighed.found_BS,
        weighed.token_BSC,
        weighed.mass_BS,
        weighed.above_BS,
        state.sampling.whole_BF,
        state.sampling.real_BF,
        logits_BV.stride(0),
        W=state.sampling.whole_BF.stride(0),
        R=state.sampling.real_BF.stride(0),
        V=vocabulary,
        T=tiles,
        T_PAD=triton.next_power_of_2(tiles),
        S=shares,
        C=places,
        BLOCK=_BLOCK,
        TILE=TILE,
        num_warps=8,
    )
    return weighed


@triton.jit
def lead(best: tl.tensor, row: tl.tensor, T: tl.constexpr, T_PAD: tl.constexpr) -> Any:
    """Return the largest logit of each tile of a row, and -inf beyond the last tile."""
    at_T = tl.arange(0, T_PAD)
    return tl.load(best + row * T + at_T, mask=at_T < T, other=float("-inf"))


@triton.jit
def winner(
    run: tl.tensor,
    runner: tl.tensor,
    row: tl.tensor,
    V: tl.constexpr,
    T: tl.constexpr,
    T_PAD: tl.constexpr,
) -> Any:
    """Return who wins the race over the whole vocabulary."""
    at_T = tl.arange(0, T_PAD)
    run_T = tl.load(run + row * T + at_T, mask=at_T < T, other=float("-inf"))
    runner_T = tl.load(runner + row * T + at_T, mask=at_T < T, other=NOBODY)
    first = tl.min(tl.where(run_T == tl.max(run_T, 0), runner_T, NOBODY), 0)
    return tl.minimum(first, V - 1)  # in a row of NaN it may be nobody


@triton.jit
def _bound(best_T: tl.tensor, top_k: tl.tensor, T: tl.constexpr, T_PAD: tl.constexpr) -> Any:
    """Return a place in the order that at least k tiles reach, 0 if there are fewer."""
    at_T = tl.arange(0, T_PAD)
    # Half of the bits tell apart what half-precision logits can.
    order_T = (order(best_T) >> 16).to(tl.int32)
    bound = tl.min(tl.where(at_T < T, order_T, 65536), 0)
    over = tl.max(tl.where(at_T < T, order_T, 0), 0) + 1
    while over - bound > 1:
        tried = (bound + over) // 2
        is_reached = tl.sum(((at_T < T) & (order_T >= tried)).to(tl.int32), 0) >= top_k
        bound = tl.where(is_reached, tried, bound)
        over = tl.where(is_reached, over, tried)
    return tl.where(top_k <= T, bound, 0).to(tl.uint32) << 16


@triton.jit
def _weigh(
    logits: tl.tensor,
    best: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
    found: tl.tensor,
    listed: tl.tensor,
    mass: tl.tensor,
    above: tl.tensor,
    whole: tl.tensor,
    real: tl.tensor,
    stride: tl.tensor,
    W: tl.constexpr,
    R: tl.constexpr,
    V: tl.constexpr,
    T: tl.constexpr,
    T_PAD: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    share, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    temperature = tl.load(real + row * R + _TEMPERATURE)
    top_k = tl.load(whole + row * W + _TOP_K)
    top_p = tl.load(real + row * R + _TOP_P)
    min_p = tl.load(real + row * R + _MIN_P)
    mine: tl.constexpr = (V + S * BLOCK - 1) // (S * BLOCK) * BLOCK
    begin = share * mine
    end = tl.minimum(begin + mine, V)
    line = logits + row * stride
    at = row * S + share
    best_T = lead(best, row, T, T_PAD)
    top = tl.max(best_T, 0)
    # A row whose logits are no numbers draws nothing.
    is_sound = (tl.max((best_T != best_T).to(tl.int32), 0) == 0) & (tl.abs(top) < float("inf"))
    if (temperature > 0) & is_sound:
        if (top_k > 0) & (top_k < V):
            bound = _bound(best_T, top_k, T, T_PAD)
            count = tl.zeros((), tl.int32)
            for first in range(begin, end, BLOCK):
                v_N = first + tl.arange(0, BLOCK)
                tile_N = tl.load(best + row * T + v_N // TILE, mask=v_N < end, other=0.0)
                # A tile that does not reach the bound is not read.
                may_N = (v_N < end) & (order(tile_N) >= bound)
                if tl.max(may_N.to(tl.int32), 0) > 0:
                    x_N = tl.load(line + v_N, mask=may_N, other=float("-inf")).to(tl.float32)
                    reaches_N = may_N & (order(x_N) >= bound)
                    rank_N = count + tl.cumsum(reaches_N.to(tl.int32), 0) - 1
                    tl.store(listed + at * C + rank_N, v_N, mask=reaches_N & (rank_N < C))
                    count += tl.sum(reaches_N.to(tl.int32), 0)
            tl.store(found + at, count)
        elif (top_p < 1) | (min_p > 0):
            cold = coldness(temperature)
            x = tl.load(line + winner(run, runner, row, V, T, T_PAD)).to(tl.float32)
            mass_N = tl.zeros((BLOCK,), tl.int64)
            above_N = tl.zeros((BLOCK,), tl.int64)
            for first in range(begin, end, BLOCK):
                v_N = first + tl.arange(0, BLOCK)
                x_N = tl.load(line + v_N, mask=v_N < end, other=float("-inf")).to(tl.float32)
                odds_N = odds(tl.exp((x_N - top) * cold))
                mass_N += odds_N
                above_N += tl.where(x_N > x, odds_N, 0)
            tl.store(mass + at, tl.sum(mass_N, 0))
            tl.store(above + at, tl.sum(above_N, 0))
