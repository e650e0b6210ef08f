"""Scripts of the folder `benchmarks`, as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def script(repository: Path, name: str) -> Iterator[ModuleType]:
    """Load one for the length of a test."""
    spec = importlib.util.spec_from_file_location(name, repository / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for it there
    known = set(sys.modules)
    sys.path.insert(0, str(repository / "benchmarks"))  # as it has its neighbours when it is run
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(repository / "benchmarks"))
        beside = {file.stem for file in (repository / "benchmarks").glob("*.py")}
        for each in {name, *(beside & (set(sys.modules) - known))}:
            del sys.modules[each]
