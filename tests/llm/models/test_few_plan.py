"""How a product of one token is cut by rule: enough loads under way, and few rows left over.

And from how many tokens on the library multiplies.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.models.fused_plans import LayerSizes, Product, few_plan, plans_for

# Llama-3-8B's, by the bytes of a number.
PLANS = [
    (Product(4096, 3072, in_pairs=True), FewPlan(1, 1024, 4), FewPlan(4, 2048, 4)),
    (Product(4096, 4096), FewPlan(8, 2048, 8), FewPlan(8, 2048, 4)),
    (Product(4096, 14336, in_pairs=True), FewPlan(1, 1024, 4), FewPlan(4, 2048, 4)),
    (Product(14336, 4096), FewPlan(2, 2048, 8), FewPlan(2, 2048, 4)),
]


@pytest.mark.parametrize(("product", "of_bfloat16", "of_codes"), PLANS)
def test_codes_take_more_rows(product: Product, of_bfloat16: FewPlan, of_codes: FewPlan) -> None:
    assert few_plan(product) == of_bfloat16
    assert few_plan(product, number_bytes=1) == of_codes


@pytest.mark.parametrize("in_pairs", [False, True])
@pytest.mark.parametrize("inputs", [1040, 1536, 2048, 2560, 2960, 8192, 8960, 14336, 18944])
def test_a_thread_asks_for_no_more_codes_than_registers_hold(inputs: int, in_pairs: bool) -> None:
    plan = few_plan(Product(inputs, 4096, in_pairs=in_pairs), number_bytes=1)
    rows = plan.outputs * (2 if in_pairs else 1)
    chunks = -(-inputs // plan.chunk)
    loads = rows * chunks * plan.chunk / 16 / 32 / plan.warps
    assert plan.chunk == 512 * plan.warps  # its own sixteen
    assert plan.warps in (1, 2, 4)
    assert loads <= (20 if plan.outputs == 1 else 16)


@pytest.mark.parametrize(
    ("hidden", "is_quantised", "most"),
    [(4096, False, 64), (4096, True, 128), (576, False, 256), (576, True, 256)],
)
def test_the_library_is_asked_for_codes_when_making_them_numbers_is_worth_it(
    hidden: int, is_quantised: bool, most: int
) -> None:
    each = Product(hidden, 4096)
    plans = plans_for(LayerSizes(each, each, each, each), is_quantised=is_quantised)
    assert list(plans.up_to) == [1, most]
    assert plans.fit(most + 1).gate_up is None
