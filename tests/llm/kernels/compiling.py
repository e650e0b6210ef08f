"""Compile kernels for an H200, without one, as a step of some model launches them.

    python compiling.py

prints a line of JSON for each kernel: its name; whether it is the same program, early launches or
not, but for the two instructions of those; how many such instructions it has; the shared memory it
takes. Triton compiles in a process that was not told to interpret.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ostinato.llm.kernels import (
    begin_rows,
    few_gate_up,
    few_head,
    few_product_add,
    few_qkv,
    head_tiles,
    norm_rows,
    paged_decode,
    paged_decode_few,
    settling,
    tiled_gate_up,
    tiled_product_add,
    tiled_qkv,
    weigh_rows,
)

H200 = GPUTarget("cuda", 90, 32)
_FLOATS = {"squares", "parted", "cos", "sin", "part_output", "part_top", "part_total"} | {
    "best",
    "run",
    "real",
    "frequencies",
}
_WHOLES = {"arrived", "lengths", "pages", "owners", "token", "runner"} | {
    "found",
    "listed",
    "history",
    "counts",
}
_LONGS = {"slots", "whole", "place", "tokens", "positions", "output", "given", "mass", "above"}
_NUMBERS = {"rows", "parts", "window", "long", "pages_stride", "vocabulary"} | {
    "q_row_stride",
    "q_head_stride",
    "tokens_stride",
    "positions_stride",
    "logits_stride",
    "history_stride",
}
_PLAIN = {"HAS_SCALE": False, "HAS_BIAS": False}


def kernels() -> Iterator[tuple[str, Any, dict[str, Any], int, int]]:
    """Yield a name, a kernel, what it is compiled for, its warps and its stages."""
    few = dict(_PLAIN, M=1)
    yield "few qkv", few_qkv._qkv, few | _heads(2048, 32, 8, 64, 1, 512) | {"SPREAD": 1}, 2, 3
    products: dict[str, Any] = {"K": 2048, "E": 2048, "N": 8, "CHUNK": 2048, "SPREAD": 1}
    yield "few sum", few_product_add._product_add, few | products, 8, 3
    gate: dict[str, Any] = {"E": 2048, "INNER": 8192, "N": 4, "CHUNK": 1024, "SPREAD": 4}
    yield "few gate_up", few_gate_up._gate_up, few | gate | {"NAME": "silu"}, 4, 3
    for tokens in (16, 64):
        # SmolLM2-135M's, whose bits were others with early launches.
        cut: dict[str, Any] = _PLAIN | {"M": tokens, "STAGES": 5, "SPLITS": 1, "PATIENT": True}
        cut |= {"AHEAD": 1}
        parts = {"PARTS_PAD": 64}
        heads = _heads(576, 9, 3, 64, 16, 64)
        yield f"tiled qkv, {tokens}", tiled_qkv._qkv, cut | heads | parts, 4, 3
        out = {"K": 576, "E": 576, "N": 16, "CHUNK": 64}
        yield f"tiled sum, {tokens}", tiled_product_add._product_add, cut | out, 4, 3
        down = {"K": 1536, "CHUNK": 128, "STAGES": 4, "SPLITS": 4, "PATIENT": False}
        yield f"split sum, {tokens}", tiled_product_add._product_add, cut | out | down, 4, 3
        wide = {"E": 576, "INNER": 1536, "N": 32, "CHUNK": 64, "NAME": "silu", "PATIENT": False}
        yield f"tiled gate_up, {tokens}", tiled_gate_up._gate_up, cut | wide | parts, 4, 3
        whole = {"STAGES": 1, "AHEAD": 9}
        yield f"whole qkv, {tokens}", tiled_qkv._qkv, cut | heads | parts | whole, 8, 3
        yield f"whole sum, {tokens}", tiled_product_add._product_add, cut | out | whole, 8, 3
        yield f"whole gate_up, {tokens}", tiled_gate_up._gate_up, cut | wide | parts | whole, 8, 3
        some = down | {"AHEAD": 2, "SPLITS": 2}
        yield f"some ahead, {tokens}", tiled_product_add._product_add, cut | out | some, 4, 3
    yield "weighing", weigh_rows._weigh, {"E": 576, "BLOCK": 1024}, 4, 3
    yield "norm", norm_rows._norm, {"E": 576, "BLOCK": 1024, "ADDS": False}, 4, 3
    shape: dict[str, Any] = {"G": 3, "R": 3, "D": 64, "PAGE": 16, "ROWS_PAD": 32, "R_PAD": 4}
    shape |= {"M": 16, "D_PAD": 64, "HAS_WINDOW": False}
    kept = shape | {"BLOCK": 64, "HAS_OWNER": False, "PIECES": 0, "LEAST": 128, "KNOWS": True}
    yield "attention", paged_decode._decode, kept, 4, 5
    alone = shape | {"PIECES": 2, "BLOCK": 256, "LONG_BLOCK": 32, "AHEAD": 0, "PAGES": 0}
    yield "attention, few", paged_decode_few._decode_few, alone, 8, 3
    shared = alone | {"PIECES": 1, "BLOCK": 64, "LONG_BLOCK": 64, "AHEAD": 4, "PAGES": 64}
    yield "attention, together", paged_decode_few._decode_few, shared, 4, 5
    begun: dict[str, Any] = {"OUT": 11, "PAGE": 16, "E": 576, "C": 32, "E_PAD": 1024, "C_PAD": 32}
    yield "begin", begin_rows._begin, begun | {"WEIGHS": True, "STANDS": True}, 4, 3
    for size, cut in (2048, (8, 2048, 1)), (576, (16, 64, 16)):
        rows = dict(zip(("N", "CHUNK", "SPREAD"), cut, strict=True))
        warps = 8 if size == 2048 else 2
        yield f"few head, {size}", few_head._head, {"E": size} | rows, warps, 1
    sampled: dict[str, Any] = {"W": 70, "R": 16, "PLACE": 3}
    head = sampled | {"E": 576, "BLOCK_B": 16, "BLOCK_V": 128, "BLOCK_E": 64, "STAGES": 4}
    one = {"NORM_B": 1, "PARTS_PAD": 64, "AHEAD": 1, "DRAWS": False}
    yield "head, ahead", head_tiles._head, head | one, 4, 3
    drawn = {"NORM_B": 16, "PARTS_PAD": 64, "AHEAD": 0, "DRAWS": True}
    yield "head, drawn", head_tiles._head, head | drawn, 4, 3
    sizes = {"OUT": 11, "V": 49152, "T": 384, "T_PAD": 512, "S": 1, "C": 1, "SPARE": 8}
    ways = {"BLOCK": 4096, "TILE": 128, "GROUP": 32, "DRAWS": False, "KEEPS": False}
    yield "settling", settling._settle, sampled | sizes | ways, 8, 3


def _heads(hidden: int, q: int, kv: int, size: int, outputs: int, chunk: int) -> dict[str, Any]:
    return {"E": hidden, "H": q, "G": kv, "D": size, "N": outputs, "CHUNK": chunk}


def compiled(kernel: Any, given: dict[str, Any], warps: int, stages: int, *, early: bool) -> Any:
    """Return the kernel, compiled for aligned pointers."""
    given = given | {"EARLY": early}
    names = kernel.arg_names
    signature = {name: _type_of(name, given) for name in names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if signature[name].startswith("*")
    }
    constants = {(names.index(name),): value for name, value in given.items()}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, "num_stages": stages, "launch_pdl": early}
    return triton.compile(source, target=H200, options=options)


def _type_of(name: str, given: dict[str, Any]) -> str:
    if name in given:
        return "constexpr"
    if name in ("eps", "scale", "amplitude"):
        return "fp32"
    if name in _NUMBERS:
        return "i32"
    kinds = ((_FLOATS, "*fp32"), (_WHOLES, "*i32"), (_LONGS, "*i64"))
    return next((kind for names, kind in kinds if name in names), "*bf16")


def program(made: Any) -> list[str]:
    """Return the program before it becomes one of a single thread, without names and places."""
    text = re.sub(r"loc\([^)]*\)+|#loc.*|%\w+", "", made.asm["ttgir"])
    return [line.strip() for line in text.splitlines() if line.strip()]


def _before_wait(lines: list[str]) -> str:
    """Return what leads to the last wait, from where ways part."""
    before = "\n".join(lines).rpartition("griddepcontrol.wait")[0]
    return before[before.rfind("} else {") + 1 :]


def main() -> None:
    for name, kernel, given, warps, stages in kernels():
        late, early = (compiled(kernel, given, warps, stages, early=each) for each in (False, True))
        rest = [line for line in program(early) if "griddepcontrol" not in line]
        told = {
            "name": name,
            "alike": rest == program(late),
            "early": len(program(early)) - len(rest),
            "copies": _before_wait(program(early)).count("async_copy_global_to_local"),
            "loads": _before_wait(program(early)).count("tt.load"),
            "late": sum("griddepcontrol" in line for line in program(late)),
            "shared_bytes": early.metadata.shared,
        }
        sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main()
