"""Fused layers on a GPU are exact with weights of one byte each."""

from __future__ import annotations

import pytest
import torch

from llm.models.decoding import Decoding, assert_exact, lengths_of

pytestmark = [pytest.mark.gpu]


@pytest.mark.parametrize("quantize", ["int8", "fp8"])
@pytest.mark.parametrize("rows", [1, 8, 100])
@pytest.mark.parametrize("name", ["1b", "qwen3"])
@torch.inference_mode()
def test_a_step_is_as_exact_as_the_composable_one(name: str, rows: int, quantize: str) -> None:
    assert_exact(Decoding(name, lengths_of(rows, 300), quantize))
