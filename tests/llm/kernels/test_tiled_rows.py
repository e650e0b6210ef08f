"""Products of a batch on tensor cores, fused with what stands around them."""

from __future__ import annotations

import pytest
import torch

from llm.kernels.cases import (
    KINDS,
    TOLERANCE,
    Heads,
    apart,
    cached,
    exact,
    fenced,
    matrix_of,
    place_of,
    random,
)

pytest.importorskip("triton")

from ostinato.llm.kernels.tiled_gate_up import tiled_gate_up, tiled_gate_up_plain
from ostinato.llm.kernels.tiled_product_add import (
    NextNorm,
    tiled_product_add,
    tiled_product_add_plain,
)
from ostinato.llm.kernels.tiled_qkv import tiled_qkv, tiled_qkv_plain
from ostinato.llm.kernels.tiled_rows import SplitRoom, TilePlan, Weighed, scaled_plain

FP32, EPS = torch.float32, 1e-5
# Rows in one program and in several; programs that are not full, in both directions; pieces ahead
# of a loop, and all of them.
CASES = pytest.mark.parametrize(
    ("rows", "plan"),
    [
        (5, TilePlan(16, 16, 1, 2)),
        (21, TilePlan(16, 32, 1, 2, tokens=16)),
        (1, TilePlan(32, 64, 1, 2, is_patient=False)),
        (17, TilePlan(16, 16, 1, 2, tokens=16, splits=3)),
        (5, TilePlan(16, 16, 1, 2, ahead=3)),
        (9, TilePlan(16, 32, 1, 1, ahead=3)),
        (17, TilePlan(16, 16, 1, 2, tokens=16, splits=2, ahead=2)),
    ],
)
SIZES = pytest.mark.parametrize("size", [96, 72])


def weighed_of(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> Weighed:
    """Return tokens that three programs have written."""
    x = fenced(random(rows, size, dtype=dtype, device=device))
    squares = fenced(torch.rand(3, rows, device=device) * size / 2)
    return Weighed(x, squares, EPS)


def in_double(weighed: Weighed) -> Weighed:
    return Weighed(weighed.x_MK.double(), weighed.squares_PM.double(), weighed.eps)


@CASES
@SIZES
@KINDS
def test_queries_keys_and_values(
    rows: int, plan: TilePlan, size: int, kind: str, interpreter: torch.device
) -> None:
    assert_qkv(Heads(3, 1, 10), rows, size, plan, kind, FP32, interpreter, is_early=False)


def assert_qkv(
    heads: Heads,
    rows: int,
    size: int,
    plan: TilePlan,
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    weighed = weighed_of(rows, size, dtype, device)
    matrix = matrix_of(heads.wide, size, kind, dtype, device)
    place = place_of(heads, rows, dtype, device)
    truth = exact(place)
    expected = tiled_qkv_plain(in_double(weighed), matrix, heads.q, truth)
    room = SplitRoom.empty(device)
    found = tiled_qkv(weighed, matrix, heads.q, place, plan=plan, room=room, is_early=is_early)
    assert apart(found, expected) < TOLERANCE[dtype]
    assert not room.arrived.any()
    assert apart(cached(place), cached(truth)) < TOLERANCE[dtype]


@CASES
@SIZES
@KINDS
@pytest.mark.parametrize("activation", ["silu", None])
def test_gate_and_up(
    rows: int,
    plan: TilePlan,
    size: int,
    kind: str,
    activation: str | None,
    interpreter: torch.device,
) -> None:
    assert_gate_up(rows, size, 42, plan, kind, activation, FP32, interpreter, is_early=False)


def assert_gate_up(
    rows: int,
    size: int,
    inner: int,
    plan: TilePlan,
    kind: str,
    activation: str | None,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    wide = inner if activation is None else 2 * inner
    weighed = weighed_of(rows, size, dtype, device)
    matrix = matrix_of(wide, size, kind, dtype, device)
    expected = tiled_gate_up_plain(in_double(weighed), matrix, activation)
    room = SplitRoom.empty(device)
    found = tiled_gate_up(weighed, matrix, activation, plan=plan, room=room, is_early=is_early)
    assert apart(found, expected) < TOLERANCE[dtype]
    assert not room.arrived.any()


@CASES
@SIZES
@KINDS
def test_a_product_is_added_and_weighed(
    rows: int, plan: TilePlan, size: int, kind: str, interpreter: torch.device
) -> None:
    assert_product_add(rows, size, 58, plan, kind, FP32, interpreter, is_early=False)


def assert_product_add(
    rows: int,
    size: int,
    hidden: int,
    plan: TilePlan,
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    x = fenced(random(rows, hidden, dtype=dtype, device=device))
    h = fenced(random(rows, size, dtype=dtype, device=device))
    matrix = matrix_of(hidden, size, kind, dtype, device)
    norm = fenced(random(hidden, dtype=dtype, device=device))
    total = x.double()
    expected = tiled_product_add_plain(total, h.double(), matrix, NextNorm(norm.double(), EPS))
    room = SplitRoom.empty(device)
    found = tiled_product_add(
        x, h, matrix, NextNorm(norm, EPS), plan=plan, room=room, is_early=is_early
    )
    assert apart(x, total) < TOLERANCE[dtype]
    assert not room.arrived.any()
    assert apart(scaled_plain(found), scaled_plain(expected)) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("plan", "fits"),
    [
        (TilePlan(16, 64, 4, 5, splits=9), True),
        (TilePlan(16, 64, 4, 5, splits=5), True),  # 128 columns each, and 64 for the last
        (TilePlan(16, 64, 4, 5, splits=8), False),
        (TilePlan(16, 64, 4, 1, ahead=9), True),
        (TilePlan(16, 64, 4, 1, ahead=10), False),
        (TilePlan(16, 64, 4, 1, splits=2, ahead=4), True),  # 320 columns, and 256
        (TilePlan(16, 64, 4, 1, splits=2, ahead=5), False),
    ],
)
def test_a_plan_fits_if_no_part_lacks_a_piece(plan: TilePlan, fits: bool) -> None:
    assert plan.fits(576) is fits
