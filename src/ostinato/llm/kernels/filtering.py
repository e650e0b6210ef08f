"""The edges that top-k, top-p and min-p draw in one row, and who wins the race among those inside.

An edge is a place in the order of the logits. Top-k's is found bit by bit in a short list that
`weighing.py` made or, where that had no room, digit by digit in sweeps over the row. Top-p's and
min-p's are not looked for: the winner of the race over all stands if it is inside; if not, nobody
below it is, and the race goes on among those above.

Masses are whole numbers, so no order of adding changes them.

Shapes: N tokens of a block or a list, T tiles, V a tile's tokens, C values of a digit.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ostinato.llm.kernels.head_tiles import win
from ostinato.llm.kernels.racing import NOBODY, noise, odds, order


@triton.jit
def _load_above(
    line: tl.tensor,
    best_line: tl.tensor,
    v_N: tl.tensor,
    least: tl.tensor,
    V: tl.constexpr,
    TILE: tl.constexpr,
) -> Any:
    """Return logits that are `least` or more in the order, and which are; of no others."""
    tile_N = tl.load(best_line + v_N // TILE, mask=v_N < V, other=0.0)
    may_N = (v_N < V) & (order(tile_N) >= least)
    x_N = tl.load(line + v_N, mask=may_N, other=float("-inf")).to(tl.float32)
    return x_N, may_N & (order(x_N) >= least)


@triton.jit
def weigh_above(
    line: tl.tensor,
    best_line: tl.tensor,
    least: tl.tensor,
    top: tl.tensor,
    cold: tl.tensor,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
) -> Any:
    """Return how many tokens are `least` or more in the order, and their mass."""
    count_N = tl.zeros((BLOCK,), tl.int64)
    mass_N = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, V, BLOCK):
        v_N = first + tl.arange(0, BLOCK)
        x_N, is_N = _load_above(line, best_line, v_N, least, V, TILE)
        count_N += is_N.to(tl.int64)
        mass_N += tl.where(is_N, odds(tl.exp((x_N - top) * cold)), 0)
    return tl.sum(count_N, 0), tl.sum(mass_N, 0)


@triton.jit
def settle_list(
    line: tl.tensor,
    found: tl.tensor,
    listed: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    top: tl.tensor,
    cold: tl.tensor,
    key: tl.tensor,
    V: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
) -> Any:
    """Return who wins among the top k, all of which are on the list."""
    i_N = tl.arange(0, S * C)
    is_N = i_N % C < tl.load(found + i_N // C)
    v_N = tl.load(listed + i_N, mask=is_N, other=0)
    x_N = tl.load(line + v_N, mask=is_N, other=float("-inf")).to(tl.float32)
    order_N = tl.where(is_N, order(x_N), 0)
    edge = tl.zeros((), tl.uint32)
    for bit in range(32):
        tried = edge | (tl.full((), 2147483648, tl.uint32) >> bit)
        enough = tl.sum((order_N >= tried).to(tl.int32), 0) >= top_k
        edge = tl.where(enough, tried, edge)
    share_N = tl.exp((x_N - top) * cold)
    if top_p < 1:
        odds_N = tl.where(order_N >= edge, odds(share_N), 0)
        need = mass_needed(tl.sum(odds_N, 0), top_p)
        nearer = tl.zeros((), tl.uint32)
        for bit in range(32):
            tried = nearer | (tl.full((), 2147483648, tl.uint32) >> bit)
            enough = tl.sum(tl.where(order_N >= tried, odds_N, 0), 0) >= need
            nearer = tl.where(enough, tried, nearer)
        edge = tl.maximum(edge, nearer)
    stays_N = is_N & (order_N >= edge) & (share_N >= min_p)
    run_N = tl.fma(x_N, cold + tl.zeros_like(x_N), noise(v_N, key))
    run_N = tl.where(stays_N, run_N, float("-inf"))
    first = tl.min(tl.where(stays_N & (run_N == tl.max(run_N, 0)), v_N, NOBODY), 0)
    return tl.minimum(first, V - 1)


@triton.jit
def mass_needed(mass: tl.tensor, top_p: tl.tensor) -> Any:
    """Return the mass that is top_p of the whole, rounded up."""
    return tl.ceil(mass.to(tl.float64) * top_p.to(tl.float64)).to(tl.int64)


@triton.jit
def edge_of(
    line: tl.tensor,
    best_line: tl.tensor,
    top_k: tl.tensor,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
) -> Any:
    """Return the place in the order of the k-th largest logit, digit by digit in whole sweeps."""
    edge = tl.zeros((), tl.uint32)
    left = top_k.to(tl.int32)
    digit_C = tl.arange(0, 512)
    for step in range(4):
        shift = 24 - 8 * step
        count_C = tl.zeros((512,), tl.int32)
        for first in range(0, V, BLOCK):
            v_N = first + tl.arange(0, BLOCK)
            x_N, is_N = _load_above(line, best_line, v_N, edge, V, TILE)
            # Beyond the last of this digit's values it is above the digits found before. What does
            # not count is spread out: many at one place would wait for each other.
            place_N = ((order(x_N) - edge) >> shift).to(tl.int64)
            place_N = tl.where(is_N & (place_N < 256), place_N, 256 + v_N % 256).to(tl.int32)
            count_C += tl.histogram(place_N, 512)
        count_C = tl.where(digit_C < 256, count_C, 0)
        reach_C = tl.cumsum(count_C, 0, reverse=True)
        digit = tl.sum(((reach_C >= left) & (digit_C < 256)).to(tl.int32), 0) - 1
        left -= tl.sum(tl.where(digit_C > digit, count_C, 0), 0)
        edge = edge | (digit.to(tl.uint32) << shift)
    return edge


@triton.jit
def race(
    line: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
    row: tl.tensor,
    key: tl.tensor,
    cold: tl.tensor,
    V: tl.constexpr,
    T: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Run the races of all tiles of a row; of one with top-k nobody has yet."""
    key_N = key + tl.zeros((GROUP,), tl.uint64)
    cold_N = cold + tl.zeros((GROUP,), tl.float32)
    for first in range(0, T, GROUP):
        tile_N = first + tl.arange(0, GROUP)
        token_VN = tile_N[None, :] * TILE + tl.arange(0, TILE)[:, None]
        x_VN = tl.load(line + token_VN, mask=token_VN < V, other=float("-inf")).to(tl.float32)
        win(x_VN, token_VN, row * T + tile_N, tile_N < T, key_N, cold_N, run, runner)
    tl.debug_barrier()  # before other threads read what these have written


@triton.jit
def settle_mass(
    line: tl.tensor,
    best_line: tl.tensor,
    best_T: tl.tensor,
    run_T: tl.tensor,
    runner_T: tl.tensor,
    least: tl.tensor,
    need: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    top: tl.tensor,
    cold: tl.tensor,
    key: tl.tensor,
    V: tl.constexpr,
    T_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
) -> Any:
    """Return who wins among tokens from `least` on that are likely enough and that the mass leaves.

    Args:
        run_T, runner_T: Who won in each tile among all; nobody in it runs with more.
    """
    at_T = tl.arange(0, T_PAD)
    t_N = tl.arange(0, TILE)
    runner = tl.zeros((), tl.int32)
    is_open = tl.full((), 1, tl.int1)
    likely_T = tl.exp((best_T - top) * cold) >= min_p
    while is_open:
        # A tile whose best is out has nobody to offer.
        run_T = tl.where(likely_T & (order(best_T) >= least), run_T, float("-inf"))
        runner = tl.min(tl.where(run_T == tl.max(run_T, 0), runner_T, NOBODY), 0)
        runner = tl.minimum(runner, V - 1)
        x = tl.load(line + runner).to(tl.float32)
        if (order(x) >= least) & (tl.exp((x - top) * cold) >= min_p):
            is_open = tl.full((), 0, tl.int1)
            if (top_p < 1) & (x < top):
                above = order(x) + 1
                _, mass = weigh_above(line, best_line, above, top, cold, V, BLOCK, TILE)
                # Enough without it: so it is out, and everyone below it.
                is_open = mass >= need
                least = tl.where(is_open, above, least)
        else:
            # The next of this tile takes its place.
            tile = runner // TILE
            v_N = tile * TILE + t_N
            x_N = tl.load(line + v_N, mask=v_N < V, other=float("-inf")).to(tl.float32)
            stays_N = (order(x_N) >= least) & (tl.exp((x_N - top) * cold) >= min_p) & (v_N < V)
            own_N = tl.fma(x_N, cold + tl.zeros_like(x_N), noise(v_N, key))
            own_N = tl.where(stays_N, own_N, float("-inf"))
            own = tl.max(own_N, 0)
            first = tl.min(tl.where(own_N == own, v_N, NOBODY), 0)
            run_T = tl.where(at_T == tile, own, run_T)
            runner_T = tl.where(at_T == tile, first, runner_T)
    return runner
