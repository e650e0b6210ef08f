"""Which token a row takes, and where that leaves the row: the end of a step, a program a row.

A greedy row takes the best of its tiles' leaders, a row that draws from the whole vocabulary the
winner of its tiles' races. A row that takes the top k has a short list from `weighing.py`: there
the edges are found bit by bit, and the race is run again among who stays. Any other filter leaves
the tokens above some edge; so if the winner of the whole race is one of them it stands, and if not,
neither does any token below it, and the race goes on among those above. All of it is exact, and the
same as `sampling.sample`.

Then the row moves on by its token, as `resident_step.advance` says.

All that is read of a row that only takes the best is asked for at once, and how the row stands
before the wait: one answer of memory stands between the head's end and this kernel's, not five.

Shapes: N tokens of a block or a list, T tiles, S programs of a row, C places of each in the list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.early import launching, let_next_begin, wait_for_previous
from ostinato.llm.kernels.filtering import (
    edge_of,
    mass_needed,
    race,
    settle_list,
    settle_mass,
    weigh_above,
)
from ostinato.llm.kernels.head_tiles import TILE, Leaders
from ostinato.llm.kernels.racing import NOBODY, coldness, hash_position, order
from ostinato.llm.kernels.weighing import Weighed, lead, winner
from ostinato.llm.sampling_state import (
    BOUND,
    MIN_P,
    PRODUCED,
    STOP_ROOM,
    STREAM,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    WHOLE,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_state import ResidentState

_BLOCK = 4096
_WARPS, _SWEEPING_WARPS = 8, 16

_STREAM: tl.constexpr = tl.constexpr(STREAM)
_TOP_K: tl.constexpr = tl.constexpr(TOP_K)
_PRODUCED: tl.constexpr = tl.constexpr(PRODUCED)
_BOUND: tl.constexpr = tl.constexpr(BOUND)
_WHOLE: tl.constexpr = tl.constexpr(WHOLE)
_STOPS: tl.constexpr = tl.constexpr(STOP_ROOM)
_TEMPERATURE: tl.constexpr = tl.constexpr(TEMPERATURE)
_TOP_P: tl.constexpr = tl.constexpr(TOP_P)
_MIN_P: tl.constexpr = tl.constexpr(MIN_P)
# How a row stands: numbers of `resident_state.Ending`, which imports what would import this.
_STOP: tl.constexpr = tl.constexpr(1)
_LENGTH: tl.constexpr = tl.constexpr(2)
_ERROR: tl.constexpr = tl.constexpr(3)
_PAUSED: tl.constexpr = tl.constexpr(5)


def settle(
    leaders: Leaders,
    state: ResidentState,
    *,
    logits_BV: Tensor | None,
    weighed: Weighed | None,
    keeps_history: bool,
    is_early: bool = False,
) -> tuple[Tensor, Tensor]:
    """Choose each row's token, and move the row on by it.

    Args:
        logits_BV: Of the rows that filter their draw; None: no row does, nor draws at all.
        weighed: What `weigh` found in them.
        keeps_history: Whether some row's history or grammar is of use.

    Returns:
        (token_B, place_B), int64: each row's token, and where in the ring it was put; of rows that
        gave none, some token and the spare place.

    Begun early, it reads how the rows stand before the wait: so the kernel ahead must let others
    begin after its own wait, and write none of it.

    Capture:
        Safe.
    """
    rows, tiles = leaders.best_BT.shape
    sampling = state.sampling
    given = torch.empty(2, rows, dtype=torch.int64, device=leaders.best_BT.device)
    unused = leaders.token_BT
    vocabulary = sampling.counts_BV.shape[1]
    block = min(_BLOCK, max(TILE, triton.next_power_of_2(vocabulary)))
    shares, places = (1, 1) if weighed is None else weighed.token_BSC.shape[1:]
    _settle[(rows,)](
        leaders.best_BT,
        leaders.token_BT,
        leaders.run_BT,
        leaders.runner_BT,
        unused if logits_BV is None else logits_BV,
        unused if weighed is None else weighed.found_BS,
        unused if weighed is None else weighed.token_BSC,
        unused if weighed is None else weighed.mass_BS,
        unused if weighed is None else weighed.above_BS,
        sampling.whole_BF,
        sampling.real_BF,
        state.place_BF,
        state.output_BF,
        sampling.history_BW,
        sampling.counts_BV,
        given,
        rows,
        0 if logits_BV is None else logits_BV.stride(0),
        sampling.history_BW.stride(0),
        W=sampling.whole_BF.stride(0),
        R=sampling.real_BF.stride(0),
        PLACE=state.place_BF.stride(0),
        OUT=state.output_BF.stride(0),
        V=vocabulary,
        T=tiles,
        T_PAD=triton.next_power_of_2(tiles),
        S=shares,
        C=places,
        SPARE=state.ring.shape[1] - 1,
        BLOCK=block,
        TILE=TILE,
        GROUP=block // TILE,
        DRAWS=weighed is not None,
        KEEPS=keeps_history,
        EARLY=is_early,
        num_warps=_SWEEPING_WARPS if weighed is not None else _WARPS,
        **launching(is_early=is_early),
    )
    return given[0], given[1]


@triton.jit(do_not_specialize=("rows", "logits_stride", "history_stride"))
def _settle(
    best: tl.tensor,
    token: tl.tensor,
    run: tl.tensor,
    runner: tl.tensor,
    logits: tl.tensor,
    found: tl.tensor,
    listed: tl.tensor,
    mass: tl.tensor,
    above: tl.tensor,
    whole: tl.tensor,
    real: tl.tensor,
    place: tl.tensor,
    output: tl.tensor,
    history: tl.tensor,
    counts: tl.tensor,
    given: tl.tensor,
    rows: tl.tensor,
    logits_stride: tl.tensor,
    history_stride: tl.tensor,
    W: tl.constexpr,
    R: tl.constexpr,
    PLACE: tl.constexpr,
    OUT: tl.constexpr,
    V: tl.constexpr,
    T: tl.constexpr,
    T_PAD: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    SPARE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    DRAWS: tl.constexpr,
    KEEPS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    at_T = tl.arange(0, T_PAD)
    spot = tl.load(output + row * OUT)
    is_running = tl.load(output + row * OUT + 1) == 0
    position = tl.load(place + row * PLACE + 1)
    is_last = position + 1 >= tl.load(place + row * PLACE + 2)
    stop_S = tl.load(whole + row * W + _WHOLE + tl.arange(0, _STOPS))
    wait_for_previous(EARLY)
    let_next_begin(EARLY)
    best_T = lead(best, row, T, T_PAD)
    token_T = tl.load(token + row * T + at_T, mask=at_T < T, other=NOBODY)
    tl.debug_barrier()  # one thread writes below what all have read here
    top = tl.max(best_T, 0)
    chosen = tl.min(tl.where(best_T == top, token_T, NOBODY), 0)
    has_nan = tl.max((best_T != best_T).to(tl.int32), 0) > 0
    is_broken = has_nan | (top == float("inf")) | (top == float("-inf"))
    if DRAWS:
        temperature = tl.load(real + row * R + _TEMPERATURE)
        if (temperature > 0) & is_running & (is_broken == 0):
            chosen = winner(run, runner, row, V, T, T_PAD)
            cold = coldness(temperature)
            key = hash_position(tl.load(whole + row * W + _STREAM), position + 1)
            top_k = tl.load(whole + row * W + _TOP_K)
            top_p = tl.load(real + row * R + _TOP_P)
            min_p = tl.load(real + row * R + _MIN_P)
            line = logits + row * logits_stride
            best_line = best + row * T
            s_S = row * S + tl.arange(0, S)
            takes_k = (top_k > 0) & (top_k < V)
            is_listed = takes_k
            is_open = takes_k
            least = tl.zeros((), tl.uint32)
            need = tl.zeros((), tl.int64)
            if takes_k:
                is_listed = tl.max(tl.load(found + s_S), 0) <= C
            if is_listed:
                chosen = settle_list(
                    line, found + row * S, listed + row * S * C,
                    top_k, top_p, min_p, top, cold, key, V, S, C,
                )  # fmt: skip
            elif takes_k:
                least = edge_of(line, best_line, top_k, V, BLOCK, TILE)
                _, mass_k = weigh_above(line, best_line, least, top, cold, V, BLOCK, TILE)
                need = mass_needed(mass_k, top_p)
                race(line, run, runner, row, key, cold, V, T, GROUP, TILE)
            elif (top_p < 1) | (min_p > 0):
                need = mass_needed(tl.sum(tl.load(mass + s_S), 0), top_p)
                x = tl.load(line + chosen).to(tl.float32)
                is_out = (top_p < 1) & (tl.sum(tl.load(above + s_S), 0) >= need)
                least = tl.where(is_out, order(x) + 1, least)
                is_open = is_out | (tl.exp((x - top) * cold) < min_p)
            if is_open & (is_listed == 0):
                run_T = tl.load(run + row * T + at_T, mask=at_T < T, other=float("-inf"))
                runner_T = tl.load(runner + row * T + at_T, mask=at_T < T, other=NOBODY)
                chosen = settle_mass(
                    line, best_line, best_T, run_T, runner_T, least, need,
                    top_p, min_p, top, cold, key, V, T_PAD, BLOCK, TILE,
                )  # fmt: skip
    chosen = tl.minimum(chosen, V - 1).to(tl.int64)
    tl.store(given + row, chosen)
    tl.store(given + rows + row, tl.where(is_running & (is_broken == 0), spot, SPARE))
    if is_running:
        if is_broken:
            tl.store(output + row * OUT + 1, tl.full((), _ERROR, tl.int64))
        else:
            tl.store(output + row * OUT + 2 + spot, chosen)
            tl.store(output + row * OUT, spot + 1)
            tl.store(place + row * PLACE, chosen)
            tl.store(place + row * PLACE + 1, position + 1)
            is_stop = tl.max((stop_S == chosen).to(tl.int32), 0) > 0
            outcome = tl.zeros((), tl.int64)
            if KEEPS:
                # The one place past the last token is nobody's.
                at = tl.minimum(position + 1, history_stride - 1)
                tl.store(history + row * history_stride + at, chosen.to(tl.int32))
                counted = counts + row * V + chosen
                tl.store(counted, tl.load(counted) + 1)
                produced = whole + row * W + _PRODUCED
                tl.store(produced, tl.load(produced) + 1)
                outcome = tl.load(whole + row * W + _BOUND) * _PAUSED
            outcome = tl.where(is_last, _LENGTH, outcome)
            outcome = tl.where(is_stop, _STOP, outcome)
            tl.store(output + row * OUT + 1, outcome)
