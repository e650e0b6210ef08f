"""Candidates: few, compilable by arithmetic, and better dealt out than what they compete with."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import Product, few_plan, tile_plan
from ostinato.llm.models.plan_candidates import candidates, load_of

GATE_UP_8B = Product(4096, 14336, in_pairs=True)
QKV_135M = Product(576, 480, in_pairs=True)
SHARED_BYTES, PROCESSORS = 227 * 1024, 132


# What the compiler itself says a program takes, Triton 3.6 for an H200, 32 tokens.
@pytest.mark.parametrize(
    ("plan", "product", "shared"),
    [
        (TilePlan(64, 64, 4, 3), GATE_UP_8B, 61_440),
        (TilePlan(64, 128, 8, 4), GATE_UP_8B, 163_840),
        (TilePlan(16, 1024, 8, 1), QKV_135M, 131_072),
    ],
)
def test_shared_memory_is_what_the_compiler_takes(
    plan: TilePlan, product: Product, shared: int
) -> None:
    assert load_of(plan, product, 32, PROCESSORS).shared == shared


def test_programs_are_counted_over_outputs_parts_and_tokens() -> None:
    plan = TilePlan(64, 128, 8, 4, splits=2)
    assert load_of(plan, GATE_UP_8B, 32, PROCESSORS).programs == 224 * 2
    assert load_of(plan, GATE_UP_8B, 300, PROCESSORS).programs == 224 * 2 * 5


def test_a_last_round_that_is_half_empty_costs_time() -> None:
    # 224 programs, one at a time on each of 132 processors, or on 224.
    plan = TilePlan(64, 128, 8, 4)
    assert load_of(plan, GATE_UP_8B, 32, 132).us > load_of(plan, GATE_UP_8B, 32, 224).us * 1.1


@pytest.mark.parametrize(
    ("plan", "product"),
    [
        (TilePlan(64, 256, 8, 5), GATE_UP_8B),  # no room
        (TilePlan(16, 512, 4, 3), QKV_135M),  # room, and 176 bytes of a thread spilt
    ],
)
def test_what_spills_or_does_not_fit_takes_for_ever(plan: TilePlan, product: Product) -> None:
    assert load_of(plan, product, 32, PROCESSORS).us == inf


def test_a_part_that_is_one_piece_is_on_its_way_before_the_wait() -> None:
    assert load_of(TilePlan(16, 1024, 8, 1), QKV_135M, 32, PROCESSORS).is_whole
    assert not load_of(TilePlan(16, 512, 8, 3), QKV_135M, 32, PROCESSORS).is_whole
    assert load_of(TilePlan(16, 512, 8, 1, splits=2), QKV_135M, 32, PROCESSORS).is_whole


@pytest.mark.parametrize("tokens", [1, 2, 8, 32, 64, 128, 256])
@pytest.mark.parametrize(
    "product",
    [
        GATE_UP_8B,
        QKV_135M,
        Product(4096, 3072, in_pairs=True),
        Product(14336, 4096),
        Product(1536, 576),
        Product(1104, 400),
        Product(16, 16),
        Product(128, 256),
    ],
)
def test_candidates_are_few_different_and_fit(product: Product, tokens: int) -> None:
    found = list(candidates(product, tokens))
    assert len(set(found)) == len(found) <= 8
    assert tile_plan(product) in found
    assert (few_plan(product) in found) is (tokens <= 2)
    assert (None in found) is (tokens > 1)
    rule = tile_plan(product)
    for plan in found:
        if isinstance(plan, TilePlan) and replace(plan, is_patient=rule.is_patient) != rule:
            load = load_of(plan, product, tokens, PROCESSORS)
            assert load.us < inf
            assert load.shared <= SHARED_BYTES
            assert plan.fits(product.inputs)
