"""Every kernel of attention at every group of heads and head size, with lengths at page edges."""

from __future__ import annotations

from random import Random

import pytest
import torch

from llm.attention import test_triton_prefill as prefilling
from llm.attention.paged_case import PagedCase

pytest.importorskip("triton")

from llm.attention import test_triton_decode as decoding
from llm.kernels import test_paged_decode_few as few
from ostinato.llm.attention.triton_attention import TritonAttention
from ostinato.llm.attention.triton_plans import decode_plans
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan

GROUPS, SIZES = range(1, 9), (64, 80, 128)
# A page holds 16 tokens: one, around one and two pages, and none.
EDGES = (1, 15, 16, 31, 0, 32, 17, 33)


def every(group: int) -> tuple[int, int]:
    """Return a head size and how many key heads: all sizes come up within three groups."""
    return SIZES[group % 3], group % 2 + 1


@pytest.mark.parametrize("group", GROUPS)
def test_decoding(group: int, kernel_device: torch.device) -> None:
    size, kv = every(group)
    case = PagedCase.of(EDGES, heads=group * kv, kv_heads=kv, size=size, device=kernel_device)
    q = case.queries(len(EDGES))
    for is_invariant in (False, True):
        attention = decoding.backend(case, is_invariant=is_invariant)
        decoding.assert_right(case, q, decoding.decode(attention, case, q))


@pytest.mark.parametrize("group", GROUPS)
def test_decoding_few_rows(group: int, kernel_device: torch.device) -> None:
    size, kv = every(group)
    lengths = EDGES[::2]
    case = PagedCase.of(lengths, heads=group * kv, kv_heads=kv, size=size, device=kernel_device)
    q = case.queries(len(lengths))
    for plan in (
        FewRowsPlan(3, 16, 1, few.NEVER),
        FewRowsPlan(2, 16, 1, 1, 16),
        FewRowsPlan(2, 16, 1, 40, ahead=1),
    ):
        few.assert_right(case, q, few.decode(case, q, plan))


@pytest.mark.parametrize("group", GROUPS)
def test_prefilling(group: int, kernel_device: torch.device) -> None:
    size, kv = every(group)
    spans = ((0, 15), (15, 17), (16, 33), (0, 1))
    case = prefilling.case_of(spans, (group * kv, kv, size), kernel_device)
    batch = prefilling.batch_of(case, spans)
    q = case.queries(len(batch.tokens_T))
    prefilling.assert_right(case, spans, q, prefilling.prefill(case, q, batch))


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("group", GROUPS)
def test_rows_and_lengths_by_lot_on_a_gpu(group: int, size: int) -> None:
    device, chance = torch.device("cuda:0"), Random(group * size)
    rows = chance.choice((1, 3, 4, 5, 32, 33, chance.randint(34, 300)))
    lengths = [chance.choice((*EDGES, chance.randint(1, 1000))) for _ in range(rows)]
    lengths[0] = chance.choice((4095, 4096, chance.randint(1, 20_000)))
    case = PagedCase.of(
        lengths, heads=2 * group, kv_heads=2, size=size, dtype=torch.bfloat16, device=device
    )
    q = case.queries(rows)
    attention = TritonAttention.on(case.shape, device=device, dtype=q.dtype, is_invariant=False)
    decoding.assert_right(case, q, decoding.decode(attention, case, q))
    plans = decode_plans(
        case.shape, device=device, dtype=q.dtype, is_invariant=False, programs=None
    )
    if (plan := plans.fit_next(rows)) is not None:
        few.assert_right(case, q, few.decode(case, q, plan))
