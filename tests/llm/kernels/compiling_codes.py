"""Compile kernels of codes for an H200, without one.

    python compiling_codes.py

prints a line of JSON for each: its name, and what its instructions convert from and to, with the
types as PTX names them. Triton compiles in a process that was not told to interpret.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import triton
from triton.compiler import ASTSource

from llm.kernels.compiling import H200
from ostinato.llm.kernels import few_product_add, tiled_product_add

_SIZES: dict[str, Any] = {"K": 4096, "E": 4096, "HAS_SCALE": True, "HAS_BIAS": False, "EARLY": True}
_FEW = _SIZES | {"M": 1, "N": 8, "CHUNK": 2048, "SPREAD": 0}
_TILED = _SIZES | {"M": 32, "N": 64, "CHUNK": 128, "STAGES": 3, "SPLITS": 1, "PATIENT": True}
_KERNELS = {
    "few": (few_product_add._product_add, _FEW),
    "tiled": (tiled_product_add._product_add, _TILED | {"AHEAD": 1}),
}
_TYPES = {
    "scales": "*fp32",
    "squares": "*fp32",
    "parted": "*fp32",
    "arrived": "*i32",
    "rows": "i32",
}


def main() -> None:
    for name, (kernel, given) in _KERNELS.items():
        for codes in ("i8", "fp8e4nv"):
            types = _TYPES | {"matrix": f"*{codes}"} | dict.fromkeys(given, "constexpr")
            signature = {each: types.get(each, "*bf16") for each in kernel.arg_names}
            source = ASTSource(
                kernel,
                signature,
                constexprs={
                    (kernel.arg_names.index(each),): value for each, value in given.items()
                },
                attrs={
                    (at,): [["tt.divisibility", 16]]
                    for at, each in enumerate(kernel.arg_names)
                    if signature[each].startswith("*")
                },
            )
            options = {"num_warps": 4, "num_stages": 3, "launch_pdl": True}
            made = triton.compile(source, target=H200, options=options)
            converts = sorted(set(re.findall(r"\bcvt\.[a-z0-9.]+", made.asm["ptx"])))
            sys.stdout.write(f"{json.dumps({'name': f'{name} {codes}', 'converts': converts})}\n")


if __name__ == "__main__":
    main()
