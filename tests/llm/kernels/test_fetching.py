"""What is fetched ahead: whole pages of the rows' beginnings, each once, within a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from llm.attention.paged_case import SCALE, PagedCase
from ostinato.llm.attention import AttentionShape
from ostinato.llm.attention.triton_attention import TritonAttention
from ostinato.llm.kernels import fetching
from ostinato.llm.kernels.fetching import count_fetched, fetch_pages
from ostinato.llm.kernels.paged_decode import DecodePlan, Workspace, paged_decode
from ostinato.llm.kernels.paged_decode_few import FewRowsPlan, paged_decode_few
from ostinato.llm.kv.store import KvStore

NOWHERE = 2**30


@triton.jit
def _mark(base: tl.tensor, offset_P: tl.tensor, wants_P: tl.tensor, BYTES: tl.constexpr) -> None:
    """Count at the beginning of what would be fetched, and say beside it how long that is."""
    tl.atomic_add(base + offset_P, 1.0, mask=wants_P)
    tl.store(base + offset_P + 1, BYTES * 1.0, mask=wants_P)


@triton.jit
def _fetch_all(
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    lengths: tl.tensor,
    rows: tl.tensor,
    pages_stride: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
) -> None:
    fetch_pages(
        tl.program_id(0),
        tl.num_programs(0),
        keys,
        values,
        pages,
        lengths,
        rows,
        pages_stride,
        start,
        stop,
        G,
        D,
        PAGE,
    )


def fetched(
    lengths: list[int], start: int, stop: int, *, kv_heads: int, programs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return how often each page was fetched, (pages,), of keys and of values; and the table."""
    each = 7
    table = torch.arange(1, each * len(lengths) + 1, dtype=torch.int32).view(-1, each).flip(0)
    for row, length in enumerate(lengths):
        table[row, -(-max(length, 0) // 4) :] = NOWHERE
    keys, values = (torch.zeros(each * len(lengths) + 1, 4, kv_heads, 8) for _ in range(2))
    _fetch_all[(programs,)](
        keys,
        values,
        table,
        torch.tensor(lengths),
        len(lengths),
        each,
        start,
        stop,
        G=kv_heads,
        D=8,
        PAGE=4,
    )
    for kept in (keys, values):
        first = kept.flatten(1)
        # Each as long as a page.
        assert torch.equal(first[:, 1], (first[:, 0] > 0) * (4.0 * kv_heads * 8 * 4))
        assert not first[:, 2:].any()
    return keys.flatten(1)[:, 0], values.flatten(1)[:, 0], table


@pytest.mark.parametrize("programs", [1, 4, 50])
@pytest.mark.parametrize("kv_heads", [1, 3, 8])
@pytest.mark.parametrize(("start", "stop"), [(0, 12), (0, 1000), (8, 20), (12, 12), (12, 8)])
def test_each_page_of_the_rows_beginnings_is_fetched_once(
    start: int,
    stop: int,
    kv_heads: int,
    programs: int,
    interpreter: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "_fetch", _mark)
    lengths = [1, 0, 28, 12, 13, -1]
    of_keys, of_values, table = fetched(lengths, start, stop, kv_heads=kv_heads, programs=programs)
    expected = torch.zeros_like(of_keys)
    for row, length in enumerate(lengths):
        for page in range(start // 4, -(-min(length, stop) // 4)):
            expected[table[row, page]] = 1
    assert torch.equal(of_keys, expected)
    assert torch.equal(of_values, expected)


@pytest.mark.parametrize(
    ("budget", "rows", "tokens"),
    [
        (2**24, 256, 80),
        (2**24, 128, 160),
        (2**24, 1, 21840),
        (12288 * 256 - 1, 256, 0),
        (12288 * 256, 256, 16),
        (0, 1, 0),
        (100_000, 0, 128),
    ],
)
def test_a_budget_is_cut_into_whole_pages_of_each_row(budget: int, rows: int, tokens: int) -> None:
    keys = torch.empty(5, 16, 3, 64, dtype=torch.bfloat16)
    assert count_fetched(budget, rows, keys) == tokens


def test_pages_that_a_fetch_cannot_be_as_long_as_are_left_alone() -> None:
    assert count_fetched(2**20, 1, torch.empty(5, 1, 1, 6, dtype=torch.bfloat16)) == 0
    assert count_fetched(2**20, 1, torch.empty(5, 1, 1, 8, dtype=torch.bfloat16)) > 0


def test_what_is_fetched_is_the_next_layers_unless_its_queries_see_the_newest_alone() -> None:
    cpu = torch.device("cpu")
    shape = AttentionShape(2, 1, 16, (1.0,) * 4, (None, None, 8, None))
    attention = TritonAttention.on(
        shape, device=cpu, dtype=torch.float32, is_invariant=False, programs=3
    )
    store = KvStore(4, 3, 16, 1, 16, torch.float32, cpu)
    found = attention.following(0, store)
    assert found is not None
    assert [each.data_ptr() for each in found] == [
        store.keys[1].data_ptr(),
        store.values[1].data_ptr(),
    ]
    assert attention.following(1, store) is None
    assert attention.following(3, store) is None


@pytest.mark.gpu
@pytest.mark.parametrize(
    "plan", [DecodePlan(264, 32, 2, 5), FewRowsPlan(1, 64, 2, 1000, 32, 5, ahead=2)]
)
@pytest.mark.parametrize("longest", [1, 33, 900, 20_000])
def test_no_bit_is_another_for_what_is_fetched(
    plan: DecodePlan | FewRowsPlan, longest: int
) -> None:
    device = torch.device("cuda:0")
    lengths = [longest, *torch.randint(0, min(longest, 900) + 1, (40,)).tolist()]
    case = PagedCase.of(lengths, heads=9, kv_heads=3, size=64, dtype=torch.bfloat16, device=device)
    q = case.queries(len(lengths))

    def attended(fetched: int, *, is_early: bool) -> Tensor:
        given = (q, case.store.keys[1], case.store.values[1], case.pages_BP, case.lengths_B)
        following = (case.store.keys[0], case.store.values[0])
        shared = Workspace.empty(2000, 1000, 3, 64, device)
        if isinstance(plan, DecodePlan):
            return paged_decode(
                *given,
                scale=SCALE,
                window=None,
                plan=replace(plan, fetched=fetched),
                shared=shared,
                is_early=is_early,
                knows_lengths=True,
                following=following,
            )
        return paged_decode_few(
            *given,
            scale=SCALE,
            window=None,
            plan=replace(plan, fetched=fetched),
            shared=shared,
            is_early=is_early,
            following=following,
        )

    expected = attended(0, is_early=False)
    for budget in (2**20, 2**30):
        assert torch.equal(attended(budget, is_early=True), expected)
