"""What the products of a batch share: tensor cores, with the matrix as the large side.

A batch of decoding is narrow: 8 or 32 tokens against thousands of rows of the matrix. So the matrix
is the left side and the tokens are the right side, filled up to 16, 32 or 64. The first piece of
the matrix is asked for before the wait; where it is small, all pieces are.

The norm costs no kernel. Its weights are per input and its scale is per token, so whoever writes
the residual also writes it weighed, and how large the squares of its own part of a row were;
whoever multiplies sums those up and scales what comes out.

Shapes: M tokens, R rows of the matrix, K columns, P programs that wrote the tokens. `_PAD` is the
next power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from ostinato.llm.kernels.decoding_codes import COMPILED, numbers_of

if TYPE_CHECKING:
    from torch import Tensor

_LEAST = 16
_COUNTERS = 16_384


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How a product of a batch is cut and compiled.

    Attributes:
        outputs: Rows of the matrix a program takes, at least 16; pairs, where rows go in pairs.
        chunk: Columns taken at a time, a power of two from 16.
        tokens: The most tokens of a program; more take more programs, and read the matrix again.
        splits: In how many parts the columns are cut, each a program's; the last one to end adds
            them up, always in the same order.
        is_patient: Whether the next kernel begins when this one's sums are done. Programs that wait
            stand in the way of those that have not begun, unless all of them fit at once.
        ahead: How many pieces of the matrix are asked for before the wait for the kernel ahead. If
            that is all of a part, there is no loop, and `stages` says nothing.
    """

    outputs: int
    chunk: int
    warps: int
    stages: int
    tokens: int = 64
    splits: int = 1
    is_patient: bool = True
    ahead: int = 1

    def fits(self, inputs: int) -> bool:
        """Return whether every part has all pieces of so many columns that are taken ahead."""
        part = -(-inputs // (self.chunk * self.splits)) * self.chunk
        return part * (self.splits - 1) + (self.ahead - 1) * self.chunk < inputs


@dataclass(frozen=True, slots=True)
class Weighed:
    """Tokens on their way into a product: normed but for a scale per token.

    Attributes:
        x_MK: Times the norm's weights.
        squares_PM: float32, the sums of squares of the parts of each token before that.
        eps: The norm's.
    """

    x_MK: Tensor
    squares_PM: Tensor
    eps: float

    @property
    def parts_pad(self) -> int:
        """For how many parts a kernel is compiled."""
        return int(triton.next_power_of_2(len(self.squares_PM)))


def weigh_plain(x_MK: Tensor, norm: Tensor, eps: float) -> Weighed:
    """Return tokens weighed, as one part, in plain torch."""
    squares_1M = x_MK.float().square().sum(1)[None]
    return Weighed((x_MK.float() * norm.float()).to(x_MK.dtype), squares_1M, eps)


def scaled_plain(weighed: Weighed) -> Tensor:
    """Return the normed tokens, in plain torch."""
    mean_M = weighed.squares_PM.sum(0) / weighed.x_MK.shape[1]
    scale_M1 = torch.rsqrt(mean_M + weighed.eps)[:, None]
    return (weighed.x_MK.float() * scale_M1).to(weighed.x_MK.dtype)


@dataclass(frozen=True, slots=True)
class SplitRoom:
    """What programs that share an output tell each other; launches that share it must take turns.

    Attributes:
        arrived: int32, how many are done with an output; zero between launches.
    """

    arrived: Tensor

    @classmethod
    def empty(cls, device: torch.device) -> SplitRoom:
        """Make room for the products of any model."""
        return cls(torch.zeros(_COUNTERS, dtype=torch.int32, device=device))

    def parts(self, tiles: int, tile_numbers: int, plan: TilePlan, inputs: int) -> Tensor:
        """Return room for one launch's parts."""
        if plan.splits == 1:
            return self.arrived
        assert plan.fits(inputs), f"{inputs} columns are too few for {plan}"
        assert tiles <= len(self.arrived), f"{tiles} outputs that are shared"
        return self.arrived.new_empty(tiles * plan.splits * tile_numbers, dtype=torch.float32)


def tokens_pad(rows: int, plan: TilePlan) -> int:
    """Return how many tokens a program is compiled for."""
    return min(max(int(triton.next_power_of_2(rows)), _LEAST), plan.tokens)


@triton.jit
def load_piece(
    matrix: tl.tensor, row_R: tl.tensor, k: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr
) -> Any:
    """Return columns of rows of the matrix, (R, CHUNK), zero past the last column."""
    k_K = k + tl.arange(0, CHUNK)
    at = matrix + row_R[:, None].to(tl.int64) * K + k_K[None, :]
    if K % CHUNK == 0:
        return tl.load(at, eviction_policy="evict_first")
    return tl.load(at, mask=(k_K < K)[None, :], other=0.0, eviction_policy="evict_first")


@triton.jit
def _load_tokens(
    x: tl.tensor, token_M: tl.tensor, k: tl.tensor, K: tl.constexpr, CHUNK: tl.constexpr
) -> Any:
    k_K = k + tl.arange(0, CHUNK)
    at = x + token_M[None, :] * K + k_K[:, None]
    if K % CHUNK == 0:
        return tl.load(at)
    return tl.load(at, mask=(k_K < K)[:, None], other=0.0)


@triton.jit
def _only_now(x: tl.tensor) -> Any:
    """Return `x`, which the compiler must not wait for before: it would, ahead of a loop.

    Also where nothing begins early: the compiler orders the sums of a tensor core by what it sees
    before them, and a launch one after the other has the same bits.
    """
    if COMPILED and x.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    return x


@triton.jit
def load_ahead(
    matrix: tl.tensor,
    row_R: tl.tensor,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
) -> Any:
    """Return the first pieces of this program's part of the columns: AHEAD of (R, CHUNK)."""
    start = split_start(K, CHUNK, SPLITS)
    ahead: tl.tuple = ()
    for piece in tl.static_range(AHEAD):
        ahead = ahead + (load_piece(matrix, row_R, start + piece * CHUNK, K, CHUNK),)  # noqa: RUF005 -- Triton knows no other
    return ahead


@triton.jit
def multiply(
    matrix: tl.tensor,
    row_R: tl.tensor,
    ahead: tl.tuple,
    x: tl.tensor,
    token_M: tl.tensor,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
) -> Any:
    """Return the products (R, M) of one part of the columns, float32.

    Args:
        ahead: What `load_ahead` gave.
    """
    number: tl.constexpr = x.dtype.element_ty
    start = split_start(K, CHUNK, SPLITS)
    # Loaded first and multiplied last: the copies of the loop begin while these are under way.
    tokens: tl.tuple = ()
    for piece in tl.static_range(AHEAD):
        tokens = tokens + (_load_tokens(x, token_M, start + piece * CHUNK, K, CHUNK),)  # noqa: RUF005 -- Triton knows no other
    sums_RM = tl.zeros((row_R.shape[0], token_M.shape[0]), tl.float32)
    if K > AHEAD * CHUNK * SPLITS:
        until = tl.minimum(start + tl.cdiv(K, CHUNK * SPLITS) * CHUNK, K)
        for k in tl.range(start + AHEAD * CHUNK, until, CHUNK, num_stages=STAGES):
            piece_RK = numbers_of(load_piece(matrix, row_R, k, K, CHUNK), number)
            next_KM = _load_tokens(x, token_M, k, K, CHUNK)
            sums_RM = tl.dot(piece_RK, next_KM, sums_RM, input_precision="ieee")
    if AHEAD == 1:
        first_RK = numbers_of(_only_now(ahead[0]), number)
        return tl.dot(first_RK, _only_now(tokens[0]), sums_RM, input_precision="ieee")
    # All tokens are asked for before any is put down into shared memory: the compiler would do that
    # in turns, and wait for memory in each. The matrix is put down before the wait.
    tl.debug_barrier()
    arrived: tl.tuple = ()
    for piece in tl.static_range(AHEAD):
        arrived = arrived + (_only_now(tokens[piece]),)  # noqa: RUF005 -- Triton knows no other
    for piece in tl.static_range(AHEAD):
        piece_RK = numbers_of(ahead[piece], number)
        sums_RM = tl.dot(piece_RK, arrived[piece], sums_RM, input_precision="ieee")
    return sums_RM


@triton.jit
def split_start(K: tl.constexpr, CHUNK: tl.constexpr, SPLITS: tl.constexpr) -> Any:
    """Return the first column of this program's part."""
    return tl.program_id(2) * (tl.cdiv(K, CHUNK * SPLITS) * CHUNK)


@triton.jit
def add_splits(
    sums_RM: tl.tensor,
    parts: tl.tensor,
    arrived: tl.tensor,
    R: tl.constexpr,
    M: tl.constexpr,
    SPLITS: tl.constexpr,
) -> Any:
    """Return the sums of all parts, and whether this program is the one that has them."""
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    inside = tl.arange(0, R)[:, None] * M + tl.arange(0, M)[None, :]
    at = parts + tile.to(tl.int64) * (SPLITS * R * M) + inside
    tl.store(at + tl.program_id(2) * (R * M), sums_RM)
    tl.debug_barrier()
    is_last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1
    total_RM = tl.zeros((R, M), tl.float32)
    if is_last:
        tl.store(arrived + tile, 0)
        for split in tl.static_range(SPLITS):
            # Other programs wrote these: past the nearest cache.
            total_RM += tl.load(at + split * (R * M), cache_modifier=".cg")
    return total_RM, is_last


@triton.jit
def load_squares(
    squares: tl.tensor,
    token_M: tl.tensor,
    parts: tl.tensor,
    rows: tl.tensor,
    PARTS_PAD: tl.constexpr,
) -> Any:
    """Return the parts' sums of squares of some tokens, (P, M)."""
    part_P = tl.arange(0, PARTS_PAD)
    at = squares + part_P[:, None] * rows + token_M[None, :]
    return tl.load(at, mask=(part_P < parts)[:, None], other=0.0)


@triton.jit
def pairs_of(low_N: tl.tensor, apart: tl.constexpr, N: tl.constexpr) -> Any:
    """Return N rows of the matrix, and those as far behind them, in one line."""
    both_2N = tl.join(low_N, low_N + apart)
    return tl.reshape(tl.permute(both_2N, (1, 0)), (2 * N,))


@triton.jit
def unpair(sums_RM: tl.tensor, N: tl.constexpr, M: tl.constexpr) -> Any:
    """Return the products of `pairs_of` apart: two of (N, M)."""
    return tl.split(tl.permute(tl.reshape(sums_RM, (2, N, M)), (1, 2, 0)))
