"""Runs a program in this process as `python` runs it: a script, a folder, an archive or a module.

It becomes `__main__`, with Python's own words where it cannot be found, and the same frames below
it in a traceback.
"""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader


def run_as_main(program: Sequence[str]) -> None:
    """Run a script and its arguments, or "-m", a module and its arguments.

    Raises:
        BaseException: Whatever the program raises; SystemExit where Python cannot find it.
    """
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    if program[0] == "-m":
        sys.argv = ["-m", *program[2:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(program[1])  # type: ignore[attr-defined]
        return
    sys.argv = list(program)
    path = os.path.join(os.getcwd(), program[0])
    if pkgutil.get_importer(path) is not None:  # a folder or an archive: its __main__
        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    loader = SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(_code_of(path), main.__dict__)


def _code_of(path: str) -> types.CodeType:
    with io.open_code(path) as file:
        code: types.CodeType | None = pkgutil.read_code(file)  # None unless compiled already
    if code is not None:
        return code
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)
