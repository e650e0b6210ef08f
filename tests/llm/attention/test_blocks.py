"""Blocks: every product has one shape, so no row's bits depend on what is computed with it."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.llm.attention.blocks import KEYS, ROWS, attend_in_blocks

SIZE = 32


class Products(TorchDispatchMode):
    """Collects the shapes of matrix products, without the number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, int, int]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.bmm.default:
            self.shapes.add((*args[0].shape[1:], args[1].shape[2]))
        return func(*args, **(kwargs or {}))


def test_every_product_is_16_rows_by_one_block_of_keys() -> None:
    with Products() as products:
        for rows, keys in ((1, 4), (3, 16), (16, 300), (50, 512)):
            q, kv = torch.randn(2, 3, rows, SIZE), torch.randn(2, 3, keys, SIZE)
            attend_in_blocks(q, kv, kv, torch.ones(2, rows, keys, dtype=torch.bool), 0.2)
    assert products.shapes == {(ROWS, SIZE, KEYS), (ROWS, KEYS, SIZE)}


def test_a_row_has_the_same_bits_beside_other_rows_and_more_hidden_keys() -> None:
    q, k, v = (torch.randn(1, 2, count, SIZE) for count in (40, 700, 700))
    seen = torch.arange(700) < torch.arange(1, 41)[:, None] * 7
    whole = attend_in_blocks(q, k, v, seen[None], 0.2)
    for row in (0, 1, 17, 39):
        keys = slice(0, 7 * (row + 1))
        alone = attend_in_blocks(
            q[:, :, row : row + 1], k[:, :, keys], v[:, :, keys], seen[None, row, None, keys], 0.2
        )
        assert torch.equal(alone[:, :, 0], whole[:, :, row])


def test_scores_beyond_the_range_of_exp_do_no_harm() -> None:
    q, k, v = (torch.randn(1, 1, count, SIZE) * 40 for count in (5, 300, 300))
    found = attend_in_blocks(q, k, v, torch.ones(1, 1, 300, dtype=torch.bool), 1.0)
    expected = (q.double() @ k.double().mT).softmax(-1) @ v.double()
    assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, kv = torch.randn(1, 1, 2, SIZE), torch.randn(1, 1, 8, SIZE)
    visible = torch.tensor([[False] * 8, [True] * 8])[None]
    found = attend_in_blocks(q, kv, kv, visible, 1.0)
    assert torch.equal(found[0, 0, 0], torch.zeros(SIZE))
    assert found[0, 0, 1].any()
