"""Compiled for an H200, a kernel adds in one order, whether it begins early or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

SHARED_BYTES = 227 * 1024
"""What a program on an H200 may have."""


@pytest.mark.slow
def test_early_launches_add_their_two_instructions_and_change_nothing_else(tmp_path: Path) -> None:
    """So bits that differ between the two on a GPU can only come from a race."""
    around = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiling.py")],
        check=False,
        capture_output=True,
        text=True,
        env=around | {"TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    kernels: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(kernels) == 30
    for kernel in kernels:
        assert kernel["alike"], kernel
        # Attention of a few rows is two kernels in one, of which a launch takes one way.
        is_two = kernel["name"] in ("attention, few", "attention, together")
        assert kernel["early"] == (4 if is_two else 2), kernel
        assert kernel["late"] == 0, kernel
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel
        if kernel["name"] == "attention, together":
            # Keys and values of all four blocks; page numbers, and nothing that is being written.
            assert (kernel["copies"], kernel["loads"]) == (8, 2)
        if kernel["name"] == "head, ahead":  # the first piece of its tile
            assert kernel["loads"] == 1
        if kernel["name"] == "settling":  # how the row stands
            assert kernel["loads"] == 5
