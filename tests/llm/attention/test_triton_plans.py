"""Triton plans: more rows, more and smaller programs; one plan alone where bits must not differ."""

from __future__ import annotations

import pytest
import torch

from ostinato.llm.attention import AttentionShape

pytest.importorskip("triton")

from ostinato.llm.attention import triton_plans
from ostinato.llm.attention.triton_plans import DecodePlans, decode_plans, prefill_plan
from ostinato.llm.kernels.paged_decode import DecodePlan
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan

CPU = torch.device("cpu")


def shape_of(heads: int, kv_heads: int, size: int) -> AttentionShape:
    return AttentionShape(heads, kv_heads, size, (1.0,), (None,))


def test_the_plan_is_the_first_that_serves_so_many_rows() -> None:
    plans = [DecodePlan(programs, 64, 4, 3) for programs in (1, 2, 3)]
    chosen = DecodePlans((4, 32), plans)
    found = [chosen.fit(rows).programs for rows in (1, 4, 5, 32, 33, 5000)]
    assert found == [1, 1, 2, 2, 3, 3]
    assert chosen.programs == 3


def test_in_the_invariant_mode_one_plan_serves_any_number_of_rows() -> None:
    plans = decode_plans(
        shape_of(32, 8, 128), device=CPU, dtype=torch.bfloat16, is_invariant=True, programs=7
    )
    assert len({plans.fit(rows) for rows in (1, 4, 5, 33, 300)}) == 1


def test_rows_beyond_the_few_have_programs_for_a_key_head_where_that_was_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = FewRowsPlan(2, 128, 8, 1000, ahead=1)
    monkeypatch.setitem(triton_plans.TOGETHER, (False, True), ((64, whole),))

    def plans(heads: int, dtype: torch.dtype = torch.bfloat16, kv_heads: int = 8) -> DecodePlans:
        shape = shape_of(heads, kv_heads, 128)
        return decode_plans(shape, device=CPU, dtype=dtype, is_invariant=False, programs=7)

    found = plans(32)
    assert [found.fit_next(rows) is whole for rows in (4, 5, 64, 65)] == [False, True, True, False]
    assert found.programs == 64 * 8 * 2
    # Few key heads, more query heads than a tensor core has rows.
    assert plans(28, kv_heads=4).fit_next(64) is None
    assert plans(8 * 17).fit_next(64) is None


@pytest.mark.parametrize("group", [1, 3, 7, 64])
@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_tile_holds_at_least_one_token_of_all_its_query_heads(
    group: int, size: int, dtype: torch.dtype
) -> None:
    assert prefill_plan(shape_of(group, 1, size), dtype).tile >= group


@pytest.mark.gpu
def test_programs_are_counted_in_processors_of_the_device() -> None:
    device = torch.device("cuda:0")
    count = torch.cuda.get_device_properties(device).multi_processor_count
    plans = decode_plans(
        shape_of(32, 8, 128),
        device=device,
        dtype=torch.bfloat16,
        is_invariant=False,
        programs=None,
    )
    assert [plan.programs for plan in plans.plans] == [each * count for each in (2, 8, 2, 16)]
