"""The products of a layer on a GPU, at the sizes of models, by the plans those have."""

from __future__ import annotations

import pytest
import torch

from llm.kernels import test_few_rows, test_tiled_rows
from llm.kernels.cases import Heads

pytest.importorskip("triton")

from ostinato.llm.models.fused_plans import Product, few_plan, tile_plan

pytestmark = [pytest.mark.gpu]

BF16, DEVICE = torch.bfloat16, torch.device("cuda:0")
# Hidden, heads, MLP.
LAYERS = {
    "8b": (4096, Heads(32, 8, 128), 14336),
    "135m": (576, Heads(9, 3, 64), 1536),
    "odd": (1040, Heads(8, 1, 80), 2960),
}
LAYER = pytest.mark.parametrize("layer", LAYERS)
EARLY = pytest.mark.parametrize("is_early", [False, True])


@EARLY
@LAYER
@pytest.mark.parametrize(("rows", "kind"), [(1, "plain"), (3, "biased"), (1, "codes")])
def test_products_of_few_rows(layer: str, rows: int, kind: str, is_early: bool) -> None:
    hidden, heads, inner = LAYERS[layer]
    test_few_rows.assert_qkv(
        heads,
        rows,
        hidden,
        few_plan(Product(hidden, heads.wide // 2, in_pairs=True)),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )
    test_few_rows.assert_gate_up(
        rows,
        hidden,
        inner,
        few_plan(Product(hidden, inner, in_pairs=True)),
        kind,
        "silu",
        BF16,
        DEVICE,
        is_early=is_early,
    )
    test_few_rows.assert_product_add(
        rows,
        inner,
        hidden,
        few_plan(Product(inner, hidden)),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )


@EARLY
@LAYER
@pytest.mark.parametrize(
    ("rows", "kind"), [(2, "plain"), (17, "biased"), (33, "codes"), (64, "plain"), (300, "biased")]
)
def test_products_of_a_batch(layer: str, rows: int, kind: str, is_early: bool) -> None:
    hidden, heads, inner = LAYERS[layer]
    test_tiled_rows.assert_qkv(
        heads,
        rows,
        hidden,
        tile_plan(Product(hidden, heads.wide // 2, in_pairs=True)),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )
    test_tiled_rows.assert_gate_up(
        rows,
        hidden,
        inner,
        tile_plan(Product(hidden, inner, in_pairs=True)),
        kind,
        "silu",
        BF16,
        DEVICE,
        is_early=is_early,
    )
    test_tiled_rows.assert_product_add(
        rows,
        inner,
        hidden,
        tile_plan(Product(inner, hidden)),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )
