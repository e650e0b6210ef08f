"""Candidates: few, compilable by arithmetic, and better dealt out than what they compete with."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

pytest.importorskip("triton")

from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import Apart, Product, few_plan, tile_plan
from ostinato.llm.models.plan_candidates import at_once, candidates, load_of, shared_bytes

GATE_UP_8B = Product(4096, 14336, in_pairs=True)
QKV_135M = Product(576, 480, in_pairs=True)
NARROW = [QKV_135M, Product(576, 576), Product(576, 1536, in_pairs=True), Product(1536, 576)]
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
    assert len(set(found)) == len(found) <= 13
    assert tile_plan(product) in found
    assert (few_plan(product) in found) is (tokens <= 2)
    assert (None in found) is (tokens > 1)
    rule, together = tile_plan(product), set(at_once(product, tokens))
    assert (together <= set(found)) is (tokens > 1 or not together)
    for plan in found:
        if isinstance(plan, TilePlan) and replace(plan, is_patient=rule.is_patient) != rule:
            assert plan.fits(product.inputs)
            assert shared_bytes(plan, product, tokens) <= SHARED_BYTES
            if plan not in together:
                assert load_of(plan, product, tokens, PROCESSORS).us < inf


@pytest.mark.parametrize("tokens", [8, 32, 100, 256])
@pytest.mark.parametrize("product", NARROW)
def test_a_narrow_product_has_all_of_its_columns_under_way_in_one_round(
    product: Product, tokens: int
) -> None:
    found = list(at_once(product, tokens))
    assert 2 <= len(found) == len(set(found)) <= 4
    for plan in found:
        pieces = -(-product.inputs // (plan.chunk * plan.splits))
        # Either all before the wait, or one of them and the rest ahead of the first product.
        assert (plan.ahead, plan.stages) in ((pieces, 1), (1, pieces))
        assert 3 <= pieces <= 9
        load = load_of(plan, product, tokens, PROCESSORS)
        assert load.programs <= PROCESSORS * (SHARED_BYTES // (load.shared + 1024))


def test_a_product_of_many_columns_has_some_of_them_asked_for_before_the_wait() -> None:
    down_8b = Product(14336, 4096)
    assert list(at_once(down_8b, 32)) == []
    rule = tile_plan(down_8b)
    some = {replace(rule, ahead=2), replace(rule, ahead=3, stages=rule.stages - 1)}
    assert some < set(candidates(down_8b, 32))
    assert not any(isinstance(plan, TilePlan) and plan.ahead > 1 for plan in candidates(down_8b, 1))


# As above, by the compiler's word.
@pytest.mark.parametrize(
    ("plan", "product", "tokens", "shared"),
    [
        (TilePlan(16, 64, 4, 1, ahead=9), Product(576, 576), 32, 55_296),
        (TilePlan(16, 64, 4, 1, ahead=9), QKV_135M, 32, 73_728),
        (TilePlan(32, 64, 8, 1, ahead=9), Product(576, 1536, in_pairs=True), 64, 147_456),
        (TilePlan(64, 64, 4, 6, splits=4, ahead=4), Product(8192, 2048), 32, 106_496),
        (TilePlan(64, 128, 8, 4, ahead=2), GATE_UP_8B, 32, 229_376),
    ],
)
def test_shared_memory_is_what_the_compiler_takes_for_pieces_ahead(
    plan: TilePlan, product: Product, tokens: int, shared: int
) -> None:
    assert shared_bytes(plan, product, tokens) == shared


def test_rows_in_registers_are_cut_by_the_bytes_of_a_number() -> None:
    product = Product(4096, 4096)
    assert few_plan(product, number_bytes=1) != few_plan(product)
    assert few_plan(product, number_bytes=1) in candidates(product, 1, number_bytes=1)


@pytest.mark.parametrize("product", [*NARROW, Product(14336, 4096)])
def test_codes_are_not_asked_for_ahead_of_the_wait(product: Product) -> None:
    def most(number_bytes: int) -> int:
        found = candidates(product, 32, number_bytes=number_bytes)
        return max(plan.ahead for plan in found if isinstance(plan, TilePlan))

    assert (most(1), most(2) > 1) == (1, True)


def test_the_library_is_asked_whether_it_is_faster_when_it_does_not_add() -> None:
    down, gate_up = Product(8192, 2048), Product(2048, 8192, in_pairs=True)
    assert Apart() in candidates(down, 256)
    assert Apart() not in candidates(down, 32)
    assert Apart() not in candidates(gate_up, 256)
