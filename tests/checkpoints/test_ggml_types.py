"""GGML types: each block becomes the numbers that llama.cpp would compute, bit for bit."""

import random

import numpy as np
import pytest

from checkpoints.written_gguf import block, numbers_of
from ostinato.checkpoints.ggml_types import dequantise, storage
from ostinato.errors import UsageError


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_blocks_decode_to_the_numbers_of_the_slow_twin(type_name: str) -> None:
    dice = random.Random(7)
    blocks = [block(type_name, dice) for _ in range(50)]
    expected = [number for raw in blocks for number in numbers_of(type_name, raw)]
    decoded = dequantise(b"".join(blocks), type_name, "a tensor")
    assert decoded.dtype == np.float32
    assert decoded.tolist() == expected


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_a_storage_says_how_many_bytes_its_blocks_take(type_name: str) -> None:
    known = storage(type_name)
    assert known is not None
    raw = block(type_name, random.Random(1))
    assert known.block_bytes == len(raw)
    assert known.block_values == len(numbers_of(type_name, raw))


def test_decoded_numbers_can_be_changed() -> None:
    raw = block("F32", random.Random(1))
    decoded = dequantise(raw, "F32", "a tensor")
    decoded += 1  # a view of the file's bytes would refuse
    assert decoded[0] == np.float32(numbers_of("F32", raw)[0]) + np.float32(1)


def test_a_type_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="tensor 'x' is stored as Q6_K") as caught:
        dequantise(b"", "Q6_K", "tensor 'x'")
    assert caught.value.code == "OST2002"
    assert "BF16, F16, F32, Q4_0, Q4_1, Q8_0" in caught.value.remedy
