"""The seeded programs: each plants one fault, or none, and is watched like any other program.

A program has `main(device)`. A planted one says which code must be found in `EXPECT`; a line that
ends in `<- here` is the one that must be named. `COMPANIONS` are findings that the fault brings
along. `NEEDS = "gpu"` keeps it for `record.py`, whose evidence is committed and replayed.
"""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Finding
from ostinato.doctor.watching import Choices, Watch

HERE = Path(__file__).parent
EVIDENCE = HERE / "evidence"


@dataclass(frozen=True, slots=True)
class Program:
    """One seeded program; `line` is where its fault is, 0 where no line does it."""

    name: str
    path: Path
    expect: str
    companions: tuple[str, ...]
    needs_gpu: bool
    line: int

    @property
    def evidence(self) -> Path:
        return EVIDENCE / f"{self.name}.json"


def programs(kind: str) -> list[Program]:
    """Return the "planted" or the "healthy" programs."""
    return [_read(path) for path in sorted((HERE / kind).glob("*.py"))]


def _read(path: Path) -> Program:
    names: dict[str, object] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(("EXPECT =", "NEEDS =", "COMPANIONS =")):
            exec(line, names)
    companions = names.get("COMPANIONS", ())
    assert isinstance(companions, tuple)
    return Program(
        name=path.stem,
        path=path,
        expect=str(names.get("EXPECT", "")),
        companions=companions,
        needs_gpu=names.get("NEEDS") == "gpu",
        line=next(_marked_lines(path), 0),
    )


def _marked_lines(path: Path) -> Iterator[int]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.endswith("<- here"):
            yield number


def load(program: Program) -> ModuleType:
    """Return the program as a module."""
    spec = importlib.util.spec_from_file_location(f"seeded_{program.name}", program.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def watch_program(program: Program, device: str, choices: Choices | None = None) -> Evidence:
    """Run a program under a watch, and return what was seen.

    The collector is not to walk what other tests of this process have made: how long that takes is
    no property of the program.
    """
    module = load(program)
    gc.collect()
    gc.freeze()
    try:
        with Watch(program.name, choices) as watching:
            module.main(device)
    finally:
        gc.unfreeze()
    return watching.evidence


def found(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings; a probe that fails fails the test."""
    report = diagnose(evidence)
    assert not [problem for problem in report.problems if "probe" in problem]
    return report.findings
