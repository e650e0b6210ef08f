"""Store: a token's keys and values are found where its page and offset say."""

from __future__ import annotations

import torch

from ostinato.llm.kv.store import KvStore, bytes_per_page

CPU = torch.device("cpu")


def new_store(pages: int = 5) -> KvStore:
    return KvStore(2, pages, 4, 3, 8, torch.float32, CPU)


def test_a_token_lies_at_its_page_and_offset_in_its_layer_alone() -> None:
    store = new_store()
    k, v = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    store.write(1, k, v, torch.tensor([4 * 4 + 3, 2 * 4]))
    assert torch.equal(store.keys[1, 4, 3], k[0])
    assert torch.equal(store.keys[1, 2, 0], k[1])
    assert torch.equal(store.values[1, 4, 3], v[0])
    assert torch.equal(store.values[1, 2, 0], v[1])
    assert store.keys.count_nonzero() == store.values.count_nonzero() == k.numel()


def test_the_slot_of_a_position_is_found_through_the_rows_own_pages() -> None:
    pages = torch.tensor([[3, 1], [2, 4], [-7, 99]], dtype=torch.int32)
    slots = new_store().slots_at(
        pages, torch.tensor([3, 4, 70]), torch.tensor([4, 5, 0], dtype=torch.int32)
    )
    assert slots.dtype is torch.int64
    assert slots.tolist() == [3 * 4 + 3, 4 * 4, 0]


def test_a_page_costs_what_the_tensors_say() -> None:
    store = new_store(pages=5)
    assert bytes_per_page(2, 4, 3, 8, torch.float32) * 5 == store.bytes
    assert bytes_per_page(2, 4, 3, 8, torch.bfloat16) * 10 == store.bytes
