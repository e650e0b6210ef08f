"""Codes become numbers exactly, all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
import triton
import triton.language as tl

from ostinato.llm.kernels.decoding_codes import numbers_of
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.matrix import Matrix

CODES = pytest.mark.parametrize("codes", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
WAYS = ("few", "tiled", "widened")
NUMBERS = pytest.mark.parametrize("number", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@triton.jit
def _convert(codes: tl.tensor, numbers: tl.tensor, SIZE: tl.constexpr) -> None:
    at = tl.arange(0, SIZE)
    tl.store(numbers + at, numbers_of(tl.load(codes + at), numbers.dtype.element_ty))


@CODES
@NUMBERS
def test_every_byte(codes: torch.dtype, number: torch.dtype, interpreter: torch.device) -> None:
    assert_exact(codes, number, interpreter, warps=1)


@pytest.mark.gpu
@pytest.mark.parametrize("warps", [1, 4])
@CODES
@NUMBERS
def test_every_byte_compiled(codes: torch.dtype, number: torch.dtype, warps: int) -> None:
    """With 8 bytes a thread, and with 2, which are fewer than are converted at once."""
    assert_exact(codes, number, torch.device("cuda:0"), warps=warps)


def assert_exact(
    codes: torch.dtype, number: torch.dtype, device: torch.device, *, warps: int
) -> None:
    """Compare what every byte is as a number with what torch says, signs of zeros too."""
    each = torch.arange(-128, 128, dtype=torch.int8)
    each[each.view(codes).float().isnan()] = 0  # weights are none of these
    each = each.view(codes)
    expected = each.to(number)
    found = torch.full((256,), torch.nan, dtype=number, device=device)
    _convert[(1,)](each.to(device), found, SIZE=256, num_warps=warps)
    assert torch.equal(found.cpu(), expected)
    assert torch.equal(found.cpu().signbit(), expected.signbit())


def test_codes_take_a_token_in_columns_where_a_plan_has_enough() -> None:
    def spread(weight: Tensor, plan: FewPlan) -> int:
        return plan.spread(Matrix(weight))

    codes, numbers = torch.zeros(1, 1, dtype=torch.int8), torch.zeros(1, 1, dtype=torch.bfloat16)
    assert spread(codes, FewPlan(4, 16, 1)) == 0
    assert spread(codes, FewPlan(4, 8, 1)) == 1
    assert spread(codes, FewPlan(4, 16, 1, is_spread=True)) == 4
    assert spread(numbers, FewPlan(4, 16, 1)) == 1
    assert spread(numbers, FewPlan(4, 16, 1, is_spread=True)) == 4


@pytest.mark.slow
def test_compiled_for_an_h200_no_code_takes_the_slow_way(tmp_path: Path) -> None:
    """An int8 to a float32, and a float16 to a bfloat16, are one instruction that takes four."""
    around = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-m", "llm.kernels.compiling_codes"],
        check=False,
        capture_output=True,
        text=True,
        env=around | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    kernels = {each["name"]: each for each in map(json.loads, ran.stdout.splitlines())}
    of_codes = [f"{way} {codes}" for codes in ("i8", "fp8e4nv") for way in WAYS]
    assert list(kernels) == [*of_codes, "words, sum", "words, long sum", "words, gate_up"]
    for name, kernel in kernels.items():
        converts = {*kernel["converts"]}
        assert not {"cvt.rn.f32.s8", "cvt.rn.f32.s16"} & converts, kernel
        assert "cvt.bf16.f16" not in {each.replace(".rn", "") for each in converts}, kernel
        # A sum of words is a whole number, which becomes one of float32; no code does.
        assert ("cvt.rn.f32.s32" in converts) is name.startswith("words"), kernel
        assert kernel["spilt"] == 0, kernel
    # Two for each word of a thread, and gate and up share the token's bytes.
    assert [kernels[f"words, {each}"]["sums"] for each in ("sum", "long sum", "gate_up")] == [
        2 * 8 * 4096 // 4 // 128,
        2 * 4 * 14336 // 4 // 128,
        2 * 8 * 4096 // 4 // 128,
    ]
    # What a thread reads it writes itself.
    assert kernels["widened i8"]["shared"] == kernels["widened fp8e4nv"]["shared"] == 0
