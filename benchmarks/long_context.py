"""How fast attention reads keys and values in the engine: a batch of long rows beside short ones.

    PYTHONPATH=src python3 benchmarks/long_context.py OUT.json [--model llama3-8b] [--batch 32]

Only steps that every row runs are counted: the rows whose prompts come in first decode for a long
while beside the others' prompts, with few keys to read. The result is written as soon as the short
rows are known, again with the long ones, and once more with the kernels of their steps. `--tiny` is
a toy, for any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from ostinato.bench.decode.context import ContextOptions, run_context
from ostinato.bench.decode.reading import ContextResult, as_text
from ostinato.cli.bench_options import save, tell

_TOY = {"batch": 3, "short": 12, "context": 70, "steps": 24, "profiled": 8, "spare": 120}


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write; 1 if nothing came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="llama3-8b")
    for name in _TOY:
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--quantize", default="none", choices=("none", "int8", "fp8"))
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--budget-s", type=float, default=180.0)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args(words)
    sizes = dict(_TOY) if given.tiny else {}
    sizes |= {name: value for name in _TOY if (value := getattr(given, name)) is not None}
    options = ContextOptions(
        model=given.model,
        device=given.device,
        engine={"quantize": given.quantize},
        budget_s=given.budget_s,
        is_tiny=given.tiny,
        **sizes,
    )

    def keep(so_far: ContextResult) -> None:
        save(so_far.to_dict(), given.out)

    result = run_context(options, tell=tell, save=keep)
    sys.stdout.write(f"{as_text(result)}\n\n{json.dumps(result.to_dict(), allow_nan=False)}\n")
    return int(result.long is None or result.long.ms is None)


if __name__ == "__main__":
    sys.exit(main())
