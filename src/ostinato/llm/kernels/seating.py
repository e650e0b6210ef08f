"""Who sits down in which row and who gets up: one copy to the device, and one kernel deals out.

The oracle is `resident_moves.Moves` in plain torch, which takes a dozen copies and kernels for it:
that many starts are a good part of what a first token waits for.

Shapes: R rows that change, F numbers of each, L token ids of the longest, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl

from ostinato.llm.sampling_state import pack

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.resident_moves import Coming
    from ostinato.llm.resident_state import Ending, ResidentState

_HEAD = 6  # a row, how it stands, tokens known, and its place: the last token and two positions
_BLOCK = 2048


def deal_out(
    state: ResidentState, endings: Mapping[int, Ending], coming: Mapping[int, Coming]
) -> None:
    """Set how the rows of `endings` stand, and all that is to be known of those that come.

    Args:
        coming: Some of the rows of `endings`.

    Capture:
        Never recorded. Does not wait for the device.
    """
    device = state.place_BF.device
    sampling = state.sampling
    whole, real = sampling.whole_BF.shape[1], sampling.real_BF.shape[1]
    longest = max((len(each.arrival.ids) for each in coming.values()), default=0)
    counted = len(endings)
    sizes = (8 * counted * (_HEAD + whole), 4 * counted * real, 4 * counted * longest)
    staged = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
    whole_RF, real_RF, ids_RL = _views(staged, sizes, counted)
    _write(whole_RF.numpy(), real_RF.numpy(), ids_RL.numpy(), endings, coming)
    sent = staged if device.type == "cpu" else staged.to(device, non_blocking=True)
    whole_RF, real_RF, ids_RL = _views(sent, sizes, counted)
    _deal[(counted,)](
        whole_RF,
        real_RF,
        ids_RL,
        sampling.whole_BF,
        sampling.real_BF,
        sampling.history_BW,
        sampling.counts_BV,
        state.place_BF,
        state.output_BF,
        longest,
        sampling.history_BW.stride(0),
        sampling.counts_BV.shape[1],
        HEAD=_HEAD,
        W=whole,
        W_PAD=triton.next_power_of_2(whole),
        R=real,
        R_PAD=triton.next_power_of_2(real),
        PLACE=state.place_BF.stride(0),
        OUT=state.output_BF.stride(0),
        BLOCK=_BLOCK,
        num_warps=8,
    )
    sampling.count_again([each.arrival for each in coming.values()])


def _views(memory: Tensor, sizes: Sequence[int], count: int) -> tuple[Tensor, Tensor, Tensor]:
    whole, real, ids = memory.split(list(sizes))
    return (
        whole.view(torch.int64).view(count, -1),
        real.view(torch.float32).view(count, -1),
        ids.view(torch.int32).view(count, sizes[2] // (4 * count)),
    )


def _write(
    whole_RF: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    real_RF: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    ids_RL: np.ndarray[tuple[int, int], np.dtype[np.int32]],
    endings: Mapping[int, Ending],
    coming: Mapping[int, Coming],
) -> None:
    came, left = list(coming.items()), [row for row in endings if row not in coming]
    whole_RF[:, :_HEAD] = [
        *((row, int(endings[row]), len(each.arrival.ids), *each.place) for row, each in came),
        *((row, int(endings[row]), 0, 0, 0, 0) for row in left),
    ]
    if came:
        here = slice(len(came))
        arrivals = [each.arrival for _, each in came]
        pack(arrivals, whole_RF[here, _HEAD:], real_RF[here], ids_RL[here])


# Sizes that vary from call to call must not make one kernel each.
@triton.jit(
    do_not_specialize=("longest", "history_stride"),
    do_not_specialize_on_alignment=("real_from", "ids_from"),
)
def _deal(
    whole_from: tl.tensor,
    real_from: tl.tensor,
    ids_from: tl.tensor,
    whole: tl.tensor,
    real: tl.tensor,
    history: tl.tensor,
    counts: tl.tensor,
    place: tl.tensor,
    output: tl.tensor,
    longest: tl.tensor,
    history_stride: tl.tensor,
    vocabulary: tl.tensor,
    HEAD: tl.constexpr,
    W: tl.constexpr,
    W_PAD: tl.constexpr,
    R: tl.constexpr,
    R_PAD: tl.constexpr,
    PLACE: tl.constexpr,
    OUT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    at = tl.program_id(0).to(tl.int64)
    line = whole_from + at * (HEAD + W)
    row = tl.load(line)
    tl.store(output + row * OUT + 1, tl.load(line + 1))
    length = tl.load(line + 2)
    if length > 0:
        n_P = tl.arange(0, 4)
        tl.store(place + row * PLACE + n_P, tl.load(line + 3 + n_P, mask=n_P < 3), mask=n_P < 3)
        n_W = tl.arange(0, W_PAD)
        tl.store(whole + row * W + n_W, tl.load(line + HEAD + n_W, mask=n_W < W), mask=n_W < W)
        n_R = tl.arange(0, R_PAD)
        number_R = tl.load(real_from + at * R + n_R, mask=n_R < R)
        tl.store(real + row * R + n_R, number_R, mask=n_R < R)
        n_N = tl.arange(0, BLOCK)
        for first in range(0, length, BLOCK):
            is_N = first + n_N < length
            ids_N = tl.load(ids_from + at * longest + first + n_N, mask=is_N)
            tl.store(history + row * history_stride + first + n_N, ids_N, mask=is_N)
        zero_N = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, vocabulary, BLOCK):
            mask_N = first + n_N < vocabulary
            tl.store(counts + row * vocabulary + first + n_N, zero_N, mask=mask_N)
