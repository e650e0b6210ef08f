"""The output head, and from each tile of the vocabulary no more than who leads there.

A step's logits are many (64 MB for 256 rows of Llama's vocabulary) and a token is one number. So a
program multiplies one tile of the head with the hidden states, and keeps of each row the likeliest
token of the tile and, where the row draws, the winner of its race. Logits are written of those rows
alone whose top-k, top-p or min-p must look at them again.

Tokens may come weighed for the last norm, as products before a norm leave them (`tiled_rows.py`):
then the norm costs no kernel here either. Begun early, a program asks for the first piece of its
tile before it waits.

Logits are rounded to the type of the weights before anything looks at them, as a product that
writes them does. Kernels of `choosing` make the row's token of this.

Shapes: B rows, V vocabulary (in a program: the tokens of one tile), E hidden, T tiles, N columns of
tokens, each of one row and tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.racing import NOBODY, coldness, hash_position, noise
from ostinato.llm.kernels.tiled_rows import Weighed, load_ahead, load_squares, multiply
from ostinato.llm.sampling_state import MIN_P, STREAM, TEMPERATURE, TOP_K, TOP_P

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_state import ResidentState

TILE = 128
"""Tokens of a tile."""
_GROUP = 16  # tiles that a program looks at where the logits are there already

_STREAM: tl.constexpr = tl.constexpr(STREAM)
_TOP_K: tl.constexpr = tl.constexpr(TOP_K)
_TEMPERATURE: tl.constexpr = tl.constexpr(TEMPERATURE)
_TOP_P: tl.constexpr = tl.constexpr(TOP_P)
_MIN_P: tl.constexpr = tl.constexpr(MIN_P)


@dataclass(frozen=True, slots=True)
class Leaders:
    """Who leads in each tile of each row.

    Attributes:
        best_BT: The largest logit, f32; NaN if one is NaN.
        token_BT: The lowest id that has it, int32.
        run_BT: What the winner of the race runs with, f32; only of rows that draw without top-k.
        runner_BT: Its id, int32.
    """

    best_BT: Tensor
    token_BT: Tensor
    run_BT: Tensor
    runner_BT: Tensor

    @classmethod
    def empty(cls, rows: int, vocabulary: int, device: torch.device) -> Leaders:
        """Make room for them."""
        shape = (rows, -(-vocabulary // TILE))
        # Each by itself: a kernel is compiled for pointers that are aligned, and one for others.
        best, token, run, runner = (
            torch.empty(shape, dtype=dtype, device=device)
            for dtype in (torch.float32, torch.int32, torch.float32, torch.int32)
        )
        return cls(best, token, run, runner)


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """How the product is cut and compiled.

    Attributes:
        rows: Rows of a program, a power of two from 16 on.
        depth: Hidden numbers taken at a time.
        ahead: How many such pieces of a tile are asked for before the wait for the kernel ahead.
        norms: Whether tokens may come weighed; if not, a norm of their own comes first.
    """

    rows: int
    depth: int
    warps: int
    stages: int
    ahead: int = 1
    norms: bool = True


def head_tiles(
    hidden: Tensor | Weighed,
    weight_VE: Tensor,
    state: ResidentState,
    *,
    plan: HeadPlan,
    draws: bool,
    is_early: bool = False,
) -> tuple[Leaders, Tensor | None]:
    """Multiply, and return who leads in each tile, and the logits of the rows that need them.

    Args:
        hidden: (B, E), normed, or tokens weighed for their norm; of the weight's dtype.
        weight_VE: Contiguous.
        draws: Whether some row may draw; if not, there are no logits.

    Returns:
        The leaders; and (B, V) of which only the rows that filter their draw are written.

    Capture:
        Safe.
    """
    weighed, x_BE = (hidden, hidden.x_MK) if isinstance(hidden, Weighed) else (None, hidden)
    rows, size = x_BE.shape
    vocabulary = len(weight_VE)
    leaders = Leaders.empty(rows, vocabulary, x_BE.device)
    logits_BV = weight_VE.new_empty(rows, vocabulary) if draws else None
    tiles = leaders.best_BT.shape[1]
    _head[(tiles * -(-rows // plan.rows),)](
        x_BE.contiguous(),
        leaders.best_BT if weighed is None else weighed.squares_PM,
        weight_VE,
        leaders.best_BT if logits_BV is None else logits_BV,
        leaders.best_BT,
        leaders.token_BT,
        leaders.run_BT,
        leaders.runner_BT,
        state.sampling.whole_BF,
        state.sampling.real_BF,
        state.place_BF,
        rows,
        vocabulary,
        0 if weighed is None else len(weighed.squares_PM),
        0.0 if weighed is None else weighed.eps,
        W=state.sampling.whole_BF.stride(0),
        R=state.sampling.real_BF.stride(0),
        PLACE=state.place_BF.stride(0),
        E=size,
        BLOCK_B=plan.rows,
        # One row's parts may be many, and are the same in each column.
        NORM_B=1 if rows == 1 else plan.rows,
        PARTS_PAD=0 if weighed is None else weighed.parts_pad,
        BLOCK_V=TILE,
        BLOCK_E=plan.depth,
        STAGES=plan.stages,
        AHEAD=min(plan.ahead, -(-size // plan.depth)),
        DRAWS=draws,
        EARLY=is_early,
        num_warps=plan.warps,
        **launching(is_early=is_early),
    )
    return leaders, logits_BV


def logit_tiles(logits_BV: Tensor, state: ResidentState, *, draws: bool) -> Leaders:
    """Return who leads in each tile of logits that are written already.

    Capture:
        Safe.
    """
    rows, vocabulary = logits_BV.shape
    leaders = Leaders.empty(rows, vocabulary, logits_BV.device)
    tiles = leaders.best_BT.shape[1]
    _logits[(-(-tiles // _GROUP), rows)](
        logits_BV,
        leaders.best_BT,
        leaders.token_BT,
        leaders.run_BT,
        leaders.runner_BT,
        state.sampling.whole_BF,
        state.sampling.real_BF,
        state.place_BF,
        vocabulary,
        tiles,
        logits_BV.stride(0),
        W=state.sampling.whole_BF.stride(0),
        R=state.sampling.real_BF.stride(0),
        PLACE=state.place_BF.stride(0),
        BLOCK_V=TILE,
        GROUP=_GROUP,
        DRAWS=draws,
        num_warps=8,
    )
    return leaders


@triton.jit
def _lead(
    x_VN: tl.tensor,
    token_VN: tl.tensor,
    at_N: tl.tensor,
    is_there_N: tl.tensor,
    best: tl.tensor,
    token: tl.tensor,
) -> None:
    """Write the largest logit of each column, and the lowest id that has it."""
    top_N = tl.max(x_VN, 0)
    first_N = tl.min(tl.where(x_VN == top_N[None, :], token_VN, NOBODY), 0)
    # A maximum may or may not pass a NaN over.
    is_broken_N = tl.max((x_VN != x_VN).to(tl.int32), 0) > 0
    tl.store(best + at_N, tl.where(is_broken_N, float("nan"), top_N), mask=is_there_N)
    tl.store(token + at_N, first_N, mask=is_there_N)


@triton.jit
def win(
    x_VN: tl.tensor,
    token_VN: tl.tensor,
    at_N: tl.tensor,
    is_there_N: tl.tensor,
    key_N: tl.tensor,
    cold_N: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
) -> None:
    """Write who wins the race of each column."""
    run_VN = tl.fma(x_VN, cold_N[None, :] + tl.zeros_like(x_VN), noise(token_VN, key_N[None, :]))
    top_N = tl.max(run_VN, 0)
    first_N = tl.min(tl.where(run_VN == top_N[None, :], token_VN, NOBODY), 0)
    tl.store(run + at_N, top_N, mask=is_there_N)
    tl.store(runner + at_N, first_N, mask=is_there_N)


@triton.jit
def _races(temperature: tl.tensor, top_k: tl.tensor, vocabulary: tl.tensor) -> Any:
    """Return whether a row's race is run here; that of a row with top-k, among the k alone."""
    return (temperature > 0) & ((top_k == 0) | (top_k >= vocabulary))


@triton.jit(do_not_specialize=("rows", "parts"))
def _head(
    x: tl.tensor,
    squares: tl.tensor,
    weight: tl.tensor,
    logits: tl.tensor,
    best: tl.tensor,
    token: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
    whole: tl.tensor,
    real: tl.tensor,
    place: tl.tensor,
    rows: tl.tensor,
    vocabulary: tl.tensor,
    parts: tl.tensor,
    eps: tl.tensor,
    W: tl.constexpr,
    R: tl.constexpr,
    PLACE: tl.constexpr,
    E: tl.constexpr,
    BLOCK_B: tl.constexpr,
    NORM_B: tl.constexpr,
    PARTS_PAD: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_E: tl.constexpr,
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,
    DRAWS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    # Programs side by side share a tile of weights, so that it is read from memory once.
    stacks = tl.cdiv(rows, BLOCK_B)
    tile, stack = tl.program_id(0) // stacks, tl.program_id(0) % stacks
    tiles = tl.cdiv(vocabulary, BLOCK_V)
    token_V = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    row_B = stack * BLOCK_B + tl.arange(0, BLOCK_B)
    is_row_B = row_B < rows
    # Beyond the ends the last row is read once more, so that loads need no mask.
    near_V = tl.minimum(token_V, vocabulary - 1)
    near_B = tl.minimum(row_B, rows - 1).to(tl.int64)
    ahead = load_ahead(weight, near_V, E, BLOCK_E, 1, AHEAD)
    wait_for_previous(EARLY)
    if PARTS_PAD > 0:
        norm_B = tl.minimum(stack * BLOCK_B + tl.arange(0, NORM_B), rows - 1)
        squares_PB = load_squares(squares, norm_B, parts, rows, PARTS_PAD)
    x_VB = multiply(weight, near_V, ahead, x, near_B, E, BLOCK_E, STAGES, 1, AHEAD)
    let_next_begin(EARLY)
    if PARTS_PAD > 0:
        x_VB *= tl.rsqrt(tl.sum(squares_PB, 0) / E + eps)[None, :]
    # Rounded, as logits that are written are.
    x_VB = x_VB.to(weight.dtype.element_ty).to(tl.float32)
    is_token_V = token_V < vocabulary
    x_VB = tl.where(is_token_V[:, None], x_VB, float("-inf"))
    token_VB = token_V[:, None] + tl.zeros((BLOCK_V, BLOCK_B), tl.int32)
    at_B = near_B * tiles + tile
    _lead(x_VB, token_VB, at_B, is_row_B, best, token)
    if DRAWS:
        temperature_B = tl.load(real + near_B * R + _TEMPERATURE)
        top_k_B = tl.load(whole + near_B * W + _TOP_K)
        if tl.max((_races(temperature_B, top_k_B, vocabulary) & is_row_B).to(tl.int32), 0) > 0:
            stream_B = tl.load(whole + near_B * W + _STREAM)
            key_B = hash_position(stream_B, tl.load(place + near_B * PLACE + 1) + 1)
            win(x_VB, token_VB, at_B, is_row_B, key_B, coldness(temperature_B), run, runner)
        cuts_B = top_k_B > 0
        cuts_B = cuts_B | (tl.load(real + near_B * R + _TOP_P) < 1)
        cuts_B = cuts_B | (tl.load(real + near_B * R + _MIN_P) > 0)
        cuts_B = cuts_B & (temperature_B > 0) & is_row_B
        if tl.max(cuts_B.to(tl.int32), 0) > 0:
            tl.store(
                logits + near_B[None, :] * vocabulary + token_V[:, None],
                x_VB.to(logits.dtype.element_ty),
                mask=cuts_B[None, :] & is_token_V[:, None],
            )


@triton.jit
def _logits(
    logits: tl.tensor,
    best: tl.tensor,
    token: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
    whole: tl.tensor,
    real: tl.tensor,
    place: tl.tensor,
    vocabulary: tl.tensor,
    tiles: tl.tensor,
    stride: tl.tensor,
    W: tl.constexpr,
    R: tl.constexpr,
    PLACE: tl.constexpr,
    BLOCK_V: tl.constexpr,
    GROUP: tl.constexpr,
    DRAWS: tl.constexpr,
) -> None:
    row = tl.program_id(1).to(tl.int64)
    tile_N = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    token_VN = tile_N[None, :] * BLOCK_V + tl.arange(0, BLOCK_V)[:, None]
    at = logits + row * stride + token_VN
    x_VN = tl.load(at, mask=token_VN < vocabulary, other=float("-inf")).to(tl.float32)
    at_N = row * tiles + tile_N
    _lead(x_VN, token_VN, at_N, tile_N < tiles, best, token)
    if DRAWS:
        temperature = tl.load(real + row * R + _TEMPERATURE)
        if _races(temperature, tl.load(whole + row * W + _TOP_K), vocabulary):
            stream = tl.load(whole + row * W + _STREAM)
            key = hash_position(stream, tl.load(place + row * PLACE + 1) + 1)
            key_N = key + tl.zeros((GROUP,), tl.uint64)
            cold_N = coldness(temperature) + tl.zeros((GROUP,), tl.float32)
            win(x_VN, token_VN, at_N, tile_N < tiles, key_N, cold_N, run, runner)
