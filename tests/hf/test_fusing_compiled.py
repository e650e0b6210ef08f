"""Compiled for an H200, no fused kernel contracts or approximates what torch's kernels do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
def test_every_sum_and_product_is_rounded_by_itself(tmp_path: Path) -> None:
    around = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiling_fused.py")],
        check=False,
        capture_output=True,
        text=True,
        env=around | {"TRITON_CACHE_DIR": str(tmp_path)},
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    kernels: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(kernels) == 21
    for kernel in kernels:
        instructions = kernel["instructions"]
        assert instructions, kernel
        # The exponential is torch's own, from the same library, and contracts inside.
        fused = [each for each in instructions if each.startswith("fma.")]
        assert not fused or kernel["name"] == "gate", kernel
        if kernel["name"] == "gate":
            assert "div.rn.f32" in instructions, kernel
        # A product that may still be contracted with a sum is written without its rounding.
        roots = ("rsqrt.", "ex2.", "fma.rm.")
        assert all(".rn." in each or each.startswith(roots) for each in instructions), kernel
