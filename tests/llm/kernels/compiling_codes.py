"""Compile kernels of codes for an H200, without one.

    python compiling_codes.py

prints a line of JSON for each: its name, and what its instructions convert from and to, with the
types as PTX names them; how many sum four products; the bytes of a thread's registers that are
spilt, and of shared memory. Triton compiles in a process that was not told to interpret.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.compiler import ASTSource

from llm.kernels.compiling import H200
from ostinato.llm.kernels import few_gate_up, few_product_add, tiled_product_add, widen_codes

_SIZES: dict[str, Any] = {"K": 4096, "E": 4096, "HAS_SCALE": True, "HAS_BIAS": False, "EARLY": True}
_SIZES |= {"WEIGHS": False}
_FEW = _SIZES | {"M": 1, "N": 8, "CHUNK": 2048, "SPREAD": 0}
_GATE: dict[str, Any] = {key: value for key, value in _FEW.items() if key != "K"} | {
    "INNER": 14336,
    "N": 4,
    "NAME": "silu",
}
_TILED = _SIZES | {"M": 32, "N": 64, "CHUNK": 128, "STAGES": 3, "SPLITS": 1, "PATIENT": True}
_TYPES = {
    "scales": "*fp32",
    "squares": "*fp32",
    "parted": "*fp32",
    "arrived": "*i32",
    "rows": "i32",
    "size": "i32",
    "eps": "fp32",
}


def kernels() -> Iterator[tuple[str, Any, dict[str, Any], str]]:
    """Yield a name, a kernel, what it is compiled for, and the type of its codes."""
    for codes in ("i8", "fp8e4nv"):
        yield f"few {codes}", few_product_add._product_add, _FEW, codes
        yield f"tiled {codes}", tiled_product_add._product_add, _TILED | {"AHEAD": 1}, codes
        yield f"widened {codes}", widen_codes._widen, {"BLOCK": widen_codes._BLOCK}, codes
    down = _FEW | {"K": 14336, "N": 4}
    yield "words, sum", few_product_add._product_add, _FEW, "i32"
    yield "words, long sum", few_product_add._product_add, down, "i32"
    yield "words, gate_up", few_gate_up._gate_up, _GATE, "i32"


def compiled(kernel: Any, given: dict[str, Any], codes: str) -> Any:
    """Return the kernel, compiled for aligned pointers and sizes."""
    names = kernel.arg_names
    given = {each: value for each, value in given.items() if each in names}
    types = _TYPES | {"matrix": f"*{codes}", "codes": f"*{codes}"}
    types |= dict.fromkeys(given, "constexpr")
    signature = {each: types.get(each, "*bf16") for each in names}
    aligned = [at for at, each in enumerate(names) if signature[each][0] == "*" or each == "size"]
    source = ASTSource(
        kernel,
        signature,
        constexprs={(names.index(each),): value for each, value in given.items()},
        attrs={(at,): [["tt.divisibility", 16]] for at in aligned},
    )
    options = {"num_warps": 4, "num_stages": 3, "launch_pdl": "EARLY" in given}
    return triton.compile(source, target=H200, options=options)


def spilt_bytes(made: Any) -> int:
    """Return what a thread keeps in memory for want of registers."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(made.asm["cubin"])
        told = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file],
            check=True,
            capture_output=True,
            text=True,
        )
    return sum(map(int, re.findall(r"(?:STACK|LOCAL):(\d+)", told.stdout)))


def main() -> None:
    for name, kernel, given, codes in kernels():
        made = compiled(kernel, given, codes)
        told = {
            "name": name,
            "converts": sorted(set(re.findall(r"\bcvt\.[a-z0-9.]+", made.asm["ptx"]))),
            "sums": made.asm["ptx"].count("dp4a."),
            "spilt": spilt_bytes(made),
            "shared": made.metadata.shared,
        }
        sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main()
