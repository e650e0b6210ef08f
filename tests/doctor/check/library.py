"""The programs that a check, the tape and a real capture must judge alike."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from doctor.check.programs.expected import Expected

_FOLDER = Path(__file__).parent / "programs"
_MARK = "in the way"


@dataclass(frozen=True, slots=True)
class Program:
    """One of them.

    Attributes:
        example: Takes the device, returns what a factory returns.
        marked: Numbers of the lines that it says are in the way.
    """

    name: str
    path: Path
    expected: Expected
    example: Callable[[str], object]
    marked: frozenset[int]


def load(name: str) -> Program:
    module = importlib.import_module(f"doctor.check.programs.{name}")
    path = Path(str(module.__file__))
    lines = path.read_text("utf-8").splitlines()
    marked = frozenset(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(_MARK))
    return Program(name, path, module.EXPECTED, module.example, marked)


NAMES = sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem != "expected")
