"""Products at sizes drawn by lot: head sizes and groups of every model, odd rows, odd widths.

Every tensor that a kernel reads lies between not-a-numbers, and the cache is full of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch

from llm.kernels import test_few_rows, test_tiled_rows
from llm.kernels.cases import TOLERANCE, Heads, apart, fenced, matrix_of, random

pytest.importorskip("triton")

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_product_add import NextNorm, tiled_product_add
from ostinato.llm.kernels.tiled_rows import SplitRoom, TilePlan
from ostinato.llm.models.fused_plans import Product, few_plan, tile_plan

FP32, BF16 = torch.float32, torch.bfloat16
SIZES, KINDS = (64, 80, 128), ("plain", "biased", "codes")


@dataclass(frozen=True)
class Draw:
    """A layer, how many tokens, and of which kind its matrices are."""

    heads: Heads
    rows: int
    hidden: int
    inner: int
    kind: str

    @classmethod
    def of(cls, number: int, most_rows: int, most_wide: int) -> Draw:
        """Every group of 1 to 8 comes up within eight numbers, and every head size within three."""
        chance = Random(number)
        group = number % 8 + 1
        wide = [16 * chance.randint(2, most_wide // 16) for _ in range(2)]
        heads = Heads(group, 1, SIZES[number % 3])
        return cls(heads, chance.randint(1, most_rows), wide[0], wide[1], chance.choice(KINDS))


def assert_tiled(
    draw: Draw, plans: list[TilePlan], dtype: torch.dtype, device: torch.device, *, early: bool
) -> None:
    rest: dict[str, Any] = {"is_early": early}
    kind, rows, qkv, gate, down = draw.kind, draw.rows, *plans
    test_tiled_rows.assert_qkv(draw.heads, rows, draw.hidden, qkv, kind, dtype, device, **rest)
    test_tiled_rows.assert_gate_up(
        rows, draw.hidden, draw.inner, gate, kind, "silu", dtype, device, **rest
    )
    test_tiled_rows.assert_product_add(
        rows, draw.inner, draw.hidden, down, kind, dtype, device, **rest
    )


@pytest.mark.parametrize("number", range(8))
def test_products_of_a_batch(number: int, interpreter: torch.device) -> None:
    draw = Draw.of(number, 40, 160)
    splits = 2 if min(draw.hidden, draw.inner) > 64 else 1
    plan = TilePlan(64, 32, 1, 2, tokens=(16, 32, 64)[number % 3], splits=splits)
    assert_tiled(draw, [plan] * 3, FP32, interpreter, early=False)


@pytest.mark.parametrize("number", range(8))
def test_products_of_few_rows(number: int, interpreter: torch.device) -> None:
    draw = Draw.of(number, 3, 160)
    plan = FewPlan(64, 64, 1, is_spread=number % 2 == 0)
    assert_few(draw, [plan] * 3, FP32, interpreter, early=False)


def assert_few(
    draw: Draw, plans: list[FewPlan], dtype: torch.dtype, device: torch.device, *, early: bool
) -> None:
    rest: dict[str, Any] = {"is_early": early}
    kind, rows, qkv, gate, down = draw.kind, draw.rows, *plans
    test_few_rows.assert_qkv(draw.heads, rows, draw.hidden, qkv, kind, dtype, device, **rest)
    test_few_rows.assert_gate_up(
        rows, draw.hidden, draw.inner, gate, kind, "silu", dtype, device, **rest
    )
    test_few_rows.assert_product_add(
        rows, draw.inner, draw.hidden, down, kind, dtype, device, **rest
    )


def products(draw: Draw) -> tuple[Product, Product, Product]:
    """The products that `assert_tiled` and `assert_few` make, in their order."""
    return (
        Product(draw.hidden, draw.heads.wide // 2, in_pairs=True),
        Product(draw.hidden, draw.inner, in_pairs=True),
        Product(draw.inner, draw.hidden),
    )


def test_a_token_that_is_no_number_stays_alone(interpreter: torch.device) -> None:
    rows, size, hidden = 9, 48, 32
    x = random(rows, hidden, dtype=FP32, device=interpreter)
    h = random(rows, size, dtype=FP32, device=interpreter)
    matrix = matrix_of(hidden, size, "plain", FP32, interpreter)
    norm = NextNorm(torch.ones(hidden), 1e-5)
    clean, dirty = x.clone(), fenced(x)
    poisoned = fenced(h)
    poisoned[[0, 4, 8]] = torch.nan
    dirty[2] = torch.nan
    room = SplitRoom.empty(interpreter)
    plan = TilePlan(16, 16, 1, 2, tokens=16, splits=3)
    truth = tiled_product_add(clean, h, matrix, norm, plan=plan, room=room, is_early=False)
    found = tiled_product_add(dirty, poisoned, matrix, norm, plan=plan, room=room, is_early=False)
    whole = [1, 3, 5, 6, 7]
    assert torch.equal(dirty[whole], clean[whole])
    assert torch.equal(found.x_MK[whole], truth.x_MK[whole])
    assert torch.equal(found.squares_PM[:, whole], truth.squares_PM[:, whole])
    assert dirty[[0, 2, 4, 8]].isnan().all()
    assert apart(found.x_MK[whole], truth.x_MK[whole]) < TOLERANCE[FP32]


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(9))
def test_products_on_a_gpu_by_the_plans_that_models_have(number: int) -> None:
    device, early = torch.device("cuda:0"), number % 2 == 1
    draw = Draw.of(number, 300, 4096)
    assert_tiled(draw, [tile_plan(each) for each in products(draw)], BF16, device, early=early)
    few = Draw.of(number, 3, 4096)
    assert_few(few, [few_plan(each) for each in products(few)], BF16, device, early=early)
