"""Fused layers on a GPU are exact at the sizes of large models."""

from __future__ import annotations

import pytest
import torch

from llm.models.decoding import Decoding, assert_exact, lengths_of

pytestmark = [pytest.mark.gpu]


@pytest.mark.parametrize("rows", [1, 3, 16, 33, 65, 300])
@pytest.mark.parametrize("name", ["8b", "1b"])
@torch.inference_mode()
def test_a_step_is_as_exact_as_the_composable_one(name: str, rows: int) -> None:
    assert_exact(Decoding(name, lengths_of(rows, 700 if rows > 4 else 5000)))
