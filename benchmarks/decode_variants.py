"""Decode with options that are not the default and may be quicker, beside it, in one run.

    PYTHONPATH=src python3 benchmarks/decode_variants.py OUT.json [--seconds 120]

Each variant is an engine of its own, with a row for each batch. The file is one of `ostinato bench
decode`, written after each row.

What they should gain, by arithmetic: of 256 prompts of 128 tokens one plan takes in 8192 tokens
while nobody decodes, and 12 plans 2048 each, beside a step of those who sit. For Llama-3-8B those
steps, and products smaller than they might be, are some 0.9 ms of each of 128 tokens; with 8192 in
every plan, and 32,768 in the first, next to nothing is left of that.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ostinato.bench.attempt import Deadline
from ostinato.bench.decode.bandwidth import read_tb_s
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.decode.ours import Work, measure_ours
from ostinato.bench.decode.rows import OURS, DecodeResult, DecodeRow
from ostinato.bench.decode.tables import as_text
from ostinato.bench.head import describe_run
from ostinato.bench.run import device_named
from ostinato.cli.bench_options import save

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        OURS: {},
        # Prompts that come while others decode: fewer plans, each of which costs those a step.
        f"{OURS}, prefill_tokens 4096": {"prefill_tokens": 4096},
        f"{OURS}, prefill_tokens 8192": {"prefill_tokens": 8192},
    }
)
"""Options of the engine, by what a row is called."""


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=120, help="nothing begins after these")
    parser.add_argument("--models", default="llama3-8b,llama3.2-1b")
    parser.add_argument("--batches", default="256")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="toy sizes: does it run?")
    given = parser.parse_args(words)
    models = given.models.split(",")
    if strangers := set(models) - set(MODELS):
        raise SystemExit(f"there is no model {min(strangers)!r}: choose from {', '.join(MODELS)}")
    device, deadline = device_named(given.device), Deadline(given.seconds)
    rate = read_tb_s(device)
    head = describe_run(device) | {"benchmark": "decode", "options": {"is_tiny": given.tiny}}
    result = DecodeResult(head, read_tb_s=rate)
    for name in models:
        for label, options in VARIANTS.items():
            if deadline.refusal:
                rows = [DecodeRow(label, name, 0, error=deadline.refusal)]
                result = replace(result, rows=(*result.rows, *rows))
                save(result.to_dict(), given.out)
                continue
            sys.stderr.write(f"{name}: {label}\n")
            for row in measure_ours(
                label,
                name,
                TINY if given.tiny else MODELS[name],
                [int(each) for each in given.batches.split(",")],
                Work(prompt=20, new=8, firsts=2, wholes=2) if given.tiny else Work(),
                options={"device": str(device), **options},
                read_tb_s=rate,
                with_kernels=False,
                note=lambda facts: None,
            ):
                result = replace(result, rows=(*result.rows, row))
                save(result.to_dict(), given.out)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    sys.stdout.write(f"{as_text(result)}\n")


if __name__ == "__main__":
    main()
