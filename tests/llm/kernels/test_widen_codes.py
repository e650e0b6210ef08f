"""Codes become a matrix of numbers: exactly those that torch makes of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from ostinato.llm.kernels import widen_codes as module
from ostinato.llm.kernels.widen_codes import can_widen, widen_codes, widen_codes_plain
from ostinato.llm.models.linear import Linear
from ostinato.llm.models.quantized import QuantizedLinear

CODES = pytest.mark.parametrize("codes", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
# Every byte; a part of a program; one more than a program, in rows that begin anywhere.
SHAPES = [(16, 16), (1, 1), (3, 37), (17, 241)]


def every_byte(shape: tuple[int, int], codes: torch.dtype, device: torch.device) -> Tensor:
    """Return all bytes again and again, but those that are not a number."""
    each = torch.arange(shape[0] * shape[1]).to(torch.int8)
    each[each.view(codes).float().isnan()] = 0
    return each.view(codes).view(shape).to(device)


def assert_exact(shape: tuple[int, int], codes: torch.dtype, device: torch.device) -> None:
    given = every_byte(shape, codes, device)
    found, expected = widen_codes(given), widen_codes_plain(given)
    assert (found.dtype, found.shape) == (torch.bfloat16, shape)
    assert torch.equal(found, expected)
    assert torch.equal(found.signbit(), expected.signbit())


@CODES
@pytest.mark.parametrize("shape", SHAPES)
def test_as_torch_does(
    codes: torch.dtype, shape: tuple[int, int], interpreter: torch.device
) -> None:
    assert_exact(shape, codes, interpreter)


def test_nothing_is_written_behind_the_last(interpreter: torch.device) -> None:
    codes = every_byte((3, 37), torch.int8, interpreter)
    room = torch.full((256,), torch.nan, dtype=torch.bfloat16, device=interpreter)
    module._widen[(1,)](codes, room, codes.numel(), BLOCK=256)
    assert torch.equal(room[: codes.numel()].view(3, 37), widen_codes_plain(codes))
    assert room[codes.numel() :].isnan().all()


@pytest.mark.gpu
@CODES
@pytest.mark.parametrize("shape", [*SHAPES, (4096, 1024)])
def test_as_torch_does_compiled(codes: torch.dtype, shape: tuple[int, int]) -> None:
    assert_exact(shape, codes, torch.device("cuda:0"))


def test_memory_without_a_gpu_is_left_to_torch() -> None:
    assert not can_widen(torch.zeros(1, dtype=torch.int8), torch.bfloat16)


@pytest.mark.gpu
@CODES
def test_a_layer_on_a_gpu_gives_the_bits_that_it_gave(
    codes: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.device("cuda:0"):
        layer = QuantizedLinear(Linear(64, 80, bias=False, is_invariant=False), codes)
        layer.fill_with_noise(0.02, torch.Generator("cuda:0").manual_seed(1))
        x = torch.randn(5, 64).bfloat16()
    widened: list[Tensor] = []
    monkeypatch.setattr(
        module, "widen_codes", lambda given: widened.append(given) or widen_codes(given)
    )
    found = layer(x)
    assert len(widened) == 1
    monkeypatch.setattr(module, "can_widen", lambda codes, number: False)
    assert torch.equal(found, layer(x))
    assert len(widened) == 1
