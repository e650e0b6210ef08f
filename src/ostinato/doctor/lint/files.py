"""Reading many files, on two processes where that pays.

Each file becomes facts on its own, so the order does not matter and nothing is shared. A file that
cannot be read is a problem beside the findings, never the end of the run.
"""

from __future__ import annotations

import ast
import gc
import multiprocessing
import os
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from ostinato.doctor.lint.facts import Module, Problem
from ostinato.doctor.lint.reading import read_module
from ostinato.doctor.lint.sources import Source, read_text

_WORTH_A_PROCESS = 3_000_000  # bytes of source; a second process costs about 0.3 s to start
_BYTES_A_SHARE = 1_500_000
_DEEP = 8_000
_MOST_PROCESSES = 8


def read_files(
    sources: Sequence[Source], processes: int | None = None
) -> tuple[list[Module], list[Problem]]:
    """Return the facts of every file, and what could not be read.

    Args:
        processes: None: as many as there are cores, if there is enough to read.
    """
    is_small = sum(source.size for source in sources) < _WORTH_A_PROCESS
    wanted = processes or (1 if is_small else min(_cores(), _MOST_PROCESSES))
    if wanted == 1:
        results = [read_share(sources)]
    else:
        # Not by forking: the caller may have threads.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(wanted, mp_context=context) as pool:
            results = list(pool.map(read_share, _shares(sources)))
    modules = [module for found, _ in results for module in found]
    problems = [problem for _, found in results for problem in found]
    return modules, problems


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shares(sources: Sequence[Source]) -> list[list[Source]]:
    """Split into shares of about one size, the files of a folder together."""
    shares: list[list[Source]] = [[]]
    size = 0
    for source in sources:
        if size > _BYTES_A_SHARE:
            shares.append([])
            size = 0
        shares[-1].append(source)
        size += source.size
    return shares


def read_share(sources: Sequence[Source]) -> tuple[list[Module], list[Problem]]:
    """Read some files in this process."""
    modules: list[Module] = []
    problems: list[Problem] = []
    depth, collecting = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(depth, _DEEP))
    gc.disable()  # trees have no cycles, and walking them all again and again is half the time
    try:
        for source in sources:
            found = read_source(source)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                modules.append(found)
                problems += [
                    Problem(source.path, line, f"{name} is nested too deeply to be read")
                    for line, name in found.unread
                ]
    finally:
        sys.setrecursionlimit(depth)
        if collecting:
            gc.enable()
    return modules, problems


def read_source(source: Source) -> Module | Problem:
    """Return the facts of one file, or why there are none."""
    text = read_text(source.path)
    if isinstance(text, Problem):
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's own invalid escapes are not our concern
            tree = ast.parse(text)
        return read_module(
            tree, source.module, source.path, is_package=source.is_package, text=text
        )
    except SyntaxError as error:
        return Problem(source.path, error.lineno or 1, f"it is not Python: {error.msg}")
    except ValueError as error:  # a null byte
        return Problem(source.path, 1, f"it is not Python: {error}")
    except (RecursionError, MemoryError):
        return Problem(source.path, 1, "it is nested too deeply to be read")
