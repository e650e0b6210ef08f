"""Compile the fused kernels for an H200, without one, and print how each computes.

    python compiling_fused.py

prints a line of JSON for each kernel and dtype: the instructions of its PTX that round a float.
Triton compiles in a process that was not told to interpret.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ostinato.hf.fusing import kernels

NUMBERS = ("x", "added", "total", "weight", "out", "gate", "up")
NUMBERS += ("q", "k", "v", "cos", "sin", "q_out", "keys", "values")
H200 = GPUTarget("cuda", 90, 32)
_FLOAT = re.compile(r"\b((?:fma|mul|add|sub|div|rsqrt|ex2)\.[a-z0-9.]*?b?f(?:32|16)(?:x2)?)\b")


def compiled(kernel: Any, given: dict[str, str], constants: dict[str, Any], warps: int) -> set[str]:
    """Return the instructions of a kernel that is given these types."""
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else given.get(name, "i32") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, types, values)
    options = {**kernels.EXACT, "num_warps": warps}
    return set(_FLOAT.findall(triton.compile(source, target=H200, options=options).asm["ptx"]))


def main() -> None:
    for number in ("fp32", "bf16", "fp16"):
        rows = dict.fromkeys(NUMBERS, f"*{number}")
        rows |= {"squared": "*fp32", "mean": "*fp32", "eps": "fp32", "column": "*i64"}
        block = {"BLOCK": 1024}
        head = {"D": 80, "PAD": 64}
        for name, kernel, constants, warps in (
            ("square", kernels._square_kernel, block | {"ADDS": False}, 4),
            ("sum and square", kernels._square_kernel, block | {"ADDS": True}, 4),
            ("scale", kernels._scale_kernel, block, 4),
            ("gate", kernels._gate_kernel, block, 4),
            ("turn", kernels._turn_kernel, head | {"KEEPS": False}, 1),
            ("turn, one token", kernels._turn_kernel, head | {"KEEPS": False, "tokens": 1}, 1),
            ("turn and keep", kernels._turn_kernel, head | {"KEEPS": True, "tokens": 1}, 1),
        ):
            found = compiled(kernel, rows, constants, warps)
            line = {"name": name, "number": number, "instructions": sorted(found)}
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
