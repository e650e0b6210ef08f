"""Run the tests that need a GPU and write what came out as one JSON file.

    PYTHONPATH=src python3 benchmarks/gpu_tests.py benchmarks/gpu-tests.json [pytest arguments]

CI has no GPU, so the result is committed: it says which tests ran, where and when.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import torch


def main(target: Path, extra: list[str]) -> int:
    """Run pytest, write the counts to `target`, and return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu or gpu2", "-p", "no:cacheprovider"]
        done = subprocess.run([*command, f"--junitxml={xml}", *(extra or ["tests"])], check=False)
        outcomes = dict(_outcomes(xml)) if xml.exists() else {}
    result = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": _machine(),
        "torch": torch.__version__,
        "counts": dict(sorted(Counter(outcomes.values()).items())),
        "failed": sorted(name for name, outcome in outcomes.items() if outcome == "failed"),
        "skipped": sorted(name for name, outcome in outcomes.items() if outcome == "skipped"),
    }
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["counts"]), *result["failed"], sep="\n")
    return done.returncode


def _machine() -> str:
    if not torch.cuda.is_available():
        return "no GPU"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"


def _outcomes(xml: Path) -> list[tuple[str, str]]:
    """Return (test, outcome) for every test case in a JUnit file."""
    found = []
    for case in ET.parse(xml).iter("testcase"):
        marks = {child.tag for child in case}
        outcome = "failed" if marks & {"failure", "error"} else "passed"
        outcome = "skipped" if "skipped" in marks and outcome == "passed" else outcome
        found.append((f"{case.get('classname')}::{case.get('name')}", outcome))
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
