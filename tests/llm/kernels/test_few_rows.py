"""Products of a few rows, fused with what stands around them."""

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

from ostinato.llm.kernels.few_gate_up import few_gate_up, few_gate_up_plain
from ostinato.llm.kernels.few_product_add import few_product_add, few_product_add_plain
from ostinato.llm.kernels.few_qkv import few_qkv, few_qkv_plain
from ostinato.llm.kernels.few_rows import FewPlan

FP32, EPS = torch.float32, 1e-5
# Whole chunks, a last chunk that is not full, one chunk for all; programs that are not full.
PLANS = pytest.mark.parametrize(
    "plan", [FewPlan(4, 16, 1), FewPlan(2, 32, 2, is_spread=True), FewPlan(8, 64, 1)]
)
SIZES = pytest.mark.parametrize("size", [48, 40])


@PLANS
@SIZES
@KINDS
def test_queries_keys_and_values(
    plan: FewPlan, size: int, kind: str, interpreter: torch.device
) -> None:
    assert_qkv(Heads(3, 1, 10), 2, size, plan, kind, FP32, interpreter, is_early=False)


def assert_qkv(
    heads: Heads,
    rows: int,
    size: int,
    plan: FewPlan,
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    x = fenced(random(rows, size, dtype=dtype, device=device))
    norm = fenced(random(size, dtype=dtype, device=device))
    matrix = matrix_of(heads.wide, size, kind, dtype, device)
    place = place_of(heads, rows, dtype, device)
    truth = exact(place)
    expected = few_qkv_plain(x.double(), norm.double(), EPS, matrix, heads.q, truth)
    found = few_qkv(x, norm, EPS, matrix, heads.q, place, plan=plan, is_early=is_early)
    assert apart(found, expected) < TOLERANCE[dtype]
    assert apart(cached(place), cached(truth)) < TOLERANCE[dtype]


@PLANS
@SIZES
@KINDS
@pytest.mark.parametrize("activation", ["silu", None])
def test_gate_and_up(
    plan: FewPlan, size: int, kind: str, activation: str | None, interpreter: torch.device
) -> None:
    assert_gate_up(3, size, 26, plan, kind, activation, FP32, interpreter, is_early=False)


def assert_gate_up(
    rows: int,
    size: int,
    inner: int,
    plan: FewPlan,
    kind: str,
    activation: str | None,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    wide = inner if activation is None else 2 * inner
    x = fenced(random(rows, size, dtype=dtype, device=device))
    norm = fenced(random(size, dtype=dtype, device=device))
    matrix = matrix_of(wide, size, kind, dtype, device)
    expected = few_gate_up_plain(x.double(), norm.double(), EPS, matrix, activation)
    found = few_gate_up(x, norm, EPS, matrix, activation, plan=plan, is_early=is_early)
    assert apart(found, expected) < TOLERANCE[dtype]


@PLANS
@SIZES
@KINDS
def test_a_product_is_added(plan: FewPlan, size: int, kind: str, interpreter: torch.device) -> None:
    assert_product_add(3, size, 26, plan, kind, FP32, interpreter, is_early=False)


def assert_product_add(
    rows: int,
    size: int,
    hidden: int,
    plan: FewPlan,
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    is_early: bool,
) -> None:
    x = fenced(random(rows, hidden, dtype=dtype, device=device))
    h = fenced(random(rows, size, dtype=dtype, device=device))
    matrix = matrix_of(hidden, size, kind, dtype, device)
    expected = x.double()
    few_product_add_plain(expected, h.double(), matrix)
    few_product_add(x, h, matrix, plan=plan, is_early=is_early)
    assert apart(x, expected) < TOLERANCE[dtype]
