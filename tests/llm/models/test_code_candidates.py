"""Trials of codes: near the rule at one token, and wide tiles where a batch is wide."""

from __future__ import annotations

from itertools import product as every

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.code_candidates import few_beside, wide_tiles
from ostinato.llm.models.fused_plans import Product, few_plan
from ostinato.llm.models.plan_candidates import candidates, shared_bytes

# Llama-3-8B's, and a narrow model's.
PRODUCTS = [
    Product(4096, 3072, in_pairs=True),
    Product(4096, 4096),
    Product(4096, 14336, in_pairs=True),
    Product(14336, 4096),
    Product(576, 480, in_pairs=True),
    Product(16, 16),
]
SHARED_BYTES = 227 * 1024


def test_rows_and_columns_are_varied_one_at_a_time() -> None:
    assert list(few_beside(FewPlan(4, 2048, 4))) == [
        FewPlan(8, 2048, 4),
        FewPlan(2, 2048, 4),
        FewPlan(4, 1024, 2),
    ]
    assert list(few_beside(FewPlan(1, 512, 1))) == [FewPlan(2, 512, 1)]
    assert list(few_beside(FewPlan(4, 64, 2, is_spread=True))) == []


def test_a_thread_keeps_its_own_sixteen_columns() -> None:
    for product in PRODUCTS[:4]:
        for plan in few_beside(few_plan(product, number_bytes=1)):
            assert plan.chunk == 16 * 32 * plan.warps


@pytest.mark.parametrize(("product", "tokens"), list(every(PRODUCTS, [65, 128, 256])))
def test_wide_tiles_take_128_tokens_and_fit(product: Product, tokens: int) -> None:
    found = list(wide_tiles(product, tokens))
    assert 1 <= len(found) == len(set(found)) <= 4
    for plan in found:
        assert plan.tokens == 128
        assert plan.fits(product.inputs)
        assert shared_bytes(plan, product, tokens) <= SHARED_BYTES
        programs = -(-product.outputs // plan.outputs) * plan.splits * -(-tokens // 128)
        assert plan.splits == 1 or programs <= 264


def test_a_narrow_batch_has_none() -> None:
    assert list(wide_tiles(PRODUCTS[0], 64)) == []


@pytest.mark.parametrize("product", PRODUCTS)
def test_they_are_tried_for_codes_alone(product: Product) -> None:
    for tokens in (1, 2, 32, 128):
        own = {*wide_tiles(product, tokens)}
        if tokens <= 2:
            own |= {*few_beside(few_plan(product, number_bytes=1))}
        of_codes = [*candidates(product, tokens, number_bytes=1)]
        assert own <= {*of_codes}
        assert len(of_codes) == len({*of_codes}) <= 13
        assert not any(
            isinstance(plan, TilePlan) and plan.tokens == 128
            for plan in candidates(product, tokens)
        )
