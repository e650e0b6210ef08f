"""Linear: an invariant layer gives a row the same bits in every batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from ostinato.llm.models.linear import product

# SmolLM2's layers, one with no round size, and one that two threads share unevenly.
SIZES = [(576, 960), (1536, 576), (2048, 2048), (100, 77)]


@pytest.fixture(params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_row_has_the_same_bits_in_every_batch(inputs: int, outputs: int) -> None:
    x, weight, bias = torch.randn(140, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    whole = product(x, weight, bias, is_invariant=True)
    assert_close(whole, functional.linear(x, weight, bias), rtol=1e-3, atol=1e-3)
    for rows in (1, 2, 7, 15, 16, 17, 33, 64, 99):
        for start in (0, 5, 40):
            found = product(x[start : start + rows], weight, bias, is_invariant=True)
            assert torch.equal(found, whole[start : start + rows]), (rows, start)


def test_a_layer_that_need_not_be_invariant_is_one_plain_product() -> None:
    x, weight = torch.randn(3, 64), torch.randn(32, 64)
    found = product(x, weight, None, is_invariant=False)
    assert torch.equal(found, functional.linear(x, weight))
