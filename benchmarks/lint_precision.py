"""How often `ostinato lint` is right: a random sample of its findings, for a person to judge.

    python benchmarks/lint_precision.py FOLDER --seed 13            print the sample with its lines
    python benchmarks/lint_precision.py FOLDER --seed 13 --check    compare with lint_precision.json

FOLDER is an installed transformers; the population is every finding in its `modeling_*.py` files.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from time import perf_counter

from ostinato.doctor.lint import LintFinding, Settings, lint

RESULT = Path(__file__).with_suffix(".json")


def population(folder: Path) -> tuple[list[LintFinding], float]:
    """Return every finding in the model files, and how many seconds the whole folder took."""
    start = perf_counter()
    found = lint([folder], Settings()).findings
    seconds = perf_counter() - start
    chosen = [one for one in found if Path(one.path).name.startswith("modeling_")]
    return sorted(chosen, key=lambda one: (one.path, one.line, one.column, one.code)), seconds


def key(finding: LintFinding, folder: Path) -> str:
    """Return what names a finding in the result file."""
    path = Path(finding.path).resolve().relative_to(folder.resolve()).as_posix()
    return f"{path}:{finding.line}:{finding.column} {finding.code}"


def show(finding: LintFinding, folder: Path, before: int = 6, after: int = 2) -> None:
    """Print a finding with the lines round it."""
    lines = Path(finding.path).read_text(encoding="utf-8").split("\n")
    print(f"## {key(finding, folder)} {finding.function}: {finding.fact}")
    for number in range(max(1, finding.line - before), min(len(lines), finding.line + after) + 1):
        mark = ">>" if number == finding.line else "  "
        print(f"{mark} {lines[number - 1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found, seconds = population(options.folder)
    sample = random.Random(options.seed).sample(found, options.size)
    print(f"{len(found)} findings, {seconds:.1f} s", file=sys.stderr)
    if options.check:
        judged = {one["finding"] for one in json.loads(RESULT.read_text())["judged"]}
        missing = [one for one in (key(one, options.folder) for one in sample) if one not in judged]
        print("\n".join(missing) or "every finding of the sample was judged")
        sys.exit(bool(missing))
    for finding in sample:
        show(finding, options.folder)


if __name__ == "__main__":
    main()
