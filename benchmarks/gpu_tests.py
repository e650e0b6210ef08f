"""Run the tests that need a GPU and write what came out as one JSON file.

    PYTHONPATH=src python3 benchmarks/gpu_tests.py TARGET.json [--workers 8] [--apart FILE] [PATH]

CI has no GPU, so the result is committed: it says which tests ran, where and when. Every test file
is a process of its own, so that one that crashes the interpreter costs its file and is named. Of a
file that takes minutes, because each of its cases compiles kernels, every test is one (`--apart`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch

# Without a GPU mark in its text, a file has no test for us; collecting it would cost seconds. The
# fixtures of conftest.py bring the mark to every test that takes a backend or a device.
_SIGNS = ("gpu", "backend_name", "device")

# A set of marks is all that this needs; the benchmark plugin warns when it runs beside others.
_PYTEST = ["-m", "gpu or gpu2", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--tb=short"]


_running: set[subprocess.Popen[str]] = set()


def main(target: Path, workers: int, paths: list[Path], apart: Iterable[Path] = ()) -> int:
    """Run every test file, write the counts to `target`; return 1 if anything failed."""
    alone = frozenset(apart)
    files = [part for file in dict.fromkeys(_files(paths)) for part in _parts(file, alone)]
    outcomes: dict[str, str] = {}
    crashed = []
    left = {str(file) for file in files}
    _write(target, outcomes, crashed, sorted(left))
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed(pool.submit(_run, file) for file in files):
            file, code, found = done.result()
            outcomes |= found
            left.discard(str(file))
            # 0 passed, 1 failed, 5 no test with these marks; anything else broke off.
            if code not in (0, 1, 5):
                crashed.append(f"{file}: exit status {code}")
            # After each file: whoever runs out of time keeps what is known.
            _write(target, outcomes, crashed, sorted(left))
    counts = Counter(outcomes.values())
    failed = sorted(name for name, outcome in outcomes.items() if outcome == "failed")
    print(json.dumps(counts), *failed, *crashed, sep="\n")
    return int(bool(failed or crashed))


def _write(target: Path, outcomes: dict[str, str], crashed: list[str], left: list[str]) -> None:
    counts = Counter(outcomes.values())
    result = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": _machine(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "counts": dict(sorted(counts.items())),
        "failed": sorted(name for name, outcome in outcomes.items() if outcome == "failed"),
        "crashed": crashed,
        "skipped": sorted(name for name, outcome in outcomes.items() if outcome == "skipped"),
        "not_run": left,
    }
    target.write_text(json.dumps(result, indent=2) + "\n")


def _files(paths: list[Path]) -> Iterator[Path]:
    """Yield what may have a test for us, in the order of the paths: time may run out."""
    for path in paths:
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if any(sign in file.read_text(encoding="utf-8") for sign in _SIGNS):
                yield file


def _parts(file: Path, apart: frozenset[Path]) -> Iterator[Path]:
    """Yield the file, or each of its tests by pytest's name for it."""
    if file not in apart:
        yield file
        return
    text = file.read_text(encoding="utf-8")
    yield from (Path(f"{file}::{name}") for name in re.findall(r"^def (test_\w+)", text, re.M))


def _run(file: Path) -> tuple[Path, int, dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", *_PYTEST, f"--junitxml={xml}", str(file)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
        )
        _running.add(process)
        out, err = process.communicate()
        _running.discard(process)
        if process.returncode not in (0, 5):
            print(f"== {file}\n{out}\n{err[-4000:]}", flush=True)
        return file, process.returncode, dict(_outcomes(xml)) if xml.exists() else {}


def _end(*_: object) -> NoReturn:
    """Leave nothing on the GPU: what is measured next has it alone."""
    for process in list(_running):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)


def _machine() -> str:
    if not torch.cuda.is_available():
        return "no GPU"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"


def _outcomes(xml: Path) -> Iterator[tuple[str, str]]:
    """Yield (test, outcome) for every test case in a JUnit file."""
    for case in ET.parse(xml).iter("testcase"):
        marks = {child.tag for child in case}
        outcome = "failed" if marks & {"failure", "error"} else "passed"
        outcome = "skipped" if "skipped" in marks and outcome == "passed" else outcome
        yield f"{case.get('classname')}::{case.get('name')}", outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--apart", type=Path, action="append", default=[])
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("tests")])
    given = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(given.target, given.workers, given.paths, given.apart))
