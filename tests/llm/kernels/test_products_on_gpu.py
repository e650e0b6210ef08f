"""The products of a layer on a GPU, at the sizes of models, by the plans those have."""

from __future__ import annotations

import pytest
import torch

from llm.kernels import test_few_rows, test_tiled_rows
from llm.kernels.cases import Heads

pytest.importorskip("triton")

from ostinato.llm.kernels.tiled_rows import TilePlan
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
@pytest.mark.parametrize(
    ("rows", "kind"), [(1, "plain"), (3, "biased"), (1, "codes"), (2, "codes"), (1, "float8")]
)
def test_products_of_few_rows(layer: str, rows: int, kind: str, is_early: bool) -> None:
    hidden, heads, inner = LAYERS[layer]
    number_bytes = 1 if kind in ("codes", "float8") else 2
    test_few_rows.assert_qkv(
        heads,
        rows,
        hidden,
        few_plan(Product(hidden, heads.wide // 2, in_pairs=True), number_bytes=number_bytes),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )
    test_few_rows.assert_gate_up(
        rows,
        hidden,
        inner,
        few_plan(Product(hidden, inner, in_pairs=True), number_bytes=number_bytes),
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
        few_plan(Product(inner, hidden), number_bytes=number_bytes),
        kind,
        BF16,
        DEVICE,
        is_early=is_early,
    )


@EARLY
@LAYER
@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (2, "plain"),
        (17, "biased"),
        (33, "codes"),
        (20, "float8"),
        (64, "plain"),
        (300, "biased"),
    ],
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


# All pieces of the matrix ahead of the wait, by few warps and by many; some, and a loop; in parts.
AHEAD = pytest.mark.parametrize(
    ("layer", "rows", "kind", "plan"),
    [
        ("135m", 32, "plain", TilePlan(16, 64, 4, 1, is_patient=False, ahead=9)),
        ("135m", 9, "codes", TilePlan(16, 64, 2, 1, is_patient=False, ahead=9)),
        ("135m", 100, "biased", TilePlan(32, 64, 8, 1, ahead=9)),
        ("135m", 33, "plain", TilePlan(16, 64, 4, 1, splits=3, is_patient=False, ahead=3)),
        ("odd", 40, "codes", TilePlan(64, 64, 4, 3, splits=2, ahead=4)),
        ("8b", 32, "plain", TilePlan(32, 128, 4, 3, splits=2, ahead=3)),
    ],
)


@EARLY
@AHEAD
def test_pieces_ahead_of_qkv(
    layer: str, rows: int, kind: str, plan: TilePlan, is_early: bool
) -> None:
    hidden, heads, _ = LAYERS[layer]
    test_tiled_rows.assert_qkv(heads, rows, hidden, plan, kind, BF16, DEVICE, is_early=is_early)


@EARLY
@AHEAD
def test_pieces_ahead_of_gate_and_up(
    layer: str, rows: int, kind: str, plan: TilePlan, is_early: bool
) -> None:
    hidden, _, inner = LAYERS[layer]
    test_tiled_rows.assert_gate_up(
        rows, hidden, inner, plan, kind, "silu", BF16, DEVICE, is_early=is_early
    )


@EARLY
@AHEAD
def test_pieces_ahead_of_a_sum(
    layer: str, rows: int, kind: str, plan: TilePlan, is_early: bool
) -> None:
    hidden, heads, _ = LAYERS[layer]
    test_tiled_rows.assert_product_add(
        rows, heads.q * heads.size, hidden, plan, kind, BF16, DEVICE, is_early=is_early
    )
