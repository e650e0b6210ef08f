"""What a run asks of its surroundings: files that are there, processes, its thread, its callers.

A replay keeps the answer. Python asks much of that for itself, as for each line that it logs; what
counts is what the user's own code asks, at most through the few modules that stand for such a call:
`os.path.exists` for `os.stat`, `np.load` for `open`. `observe_python.py` asks here.
"""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ostinato.graphs.libraries import is_library
from ostinato.graphs.source_lines import is_own

_FILES = "it asks what files there are, and a replay keeps the answer"
_PLACE = "it asks for the working directory, and a replay keeps the answer"
_PROCESS = "another process is started, and no replay does that"
_THREAD = "it asks which thread it runs in, and a replay keeps the answer"
_CALLERS = "it asks who called it, and a replay keeps the answer"
_OPENED = "a file is opened; no replay reads or writes it"

_OF_FILES = ("os", "posixpath", "ntpath", "genericpath", "pathlib", "glob", "shutil")
_DOORS: dict[str, tuple[str, ...]] = {
    _FILES: _OF_FILES,
    _PLACE: _OF_FILES,
    _PROCESS: ("subprocess", "os"),
    _THREAD: ("threading",),
    _CALLERS: ("inspect",),
    _OPENED: ("numpy", "torch.serialization", "contextlib", "gzip", "bz2", "lzma"),
}


_OF_THE_THREAD = ("current_thread", "currentThread")


def _there(module: object, *names: str) -> Iterator[Any]:
    yield from (getattr(module, name) for name in names if hasattr(module, name))


ASKED: dict[Any, str] = {
    builtins.open: _OPENED,
    **dict.fromkeys(
        _there(os, "stat", "lstat", "listdir", "scandir", "access", "readlink"), _FILES
    ),
    **dict.fromkeys(_there(os, "getcwd", "getcwdb"), _PLACE),
    **dict.fromkeys(
        _there(os, "system", "fork", "forkpty", "posix_spawn", "posix_spawnp"), _PROCESS
    ),
    **dict.fromkeys(_there(subprocess, "_fork_exec"), _PROCESS),
    **dict.fromkeys(_there(threading, "get_ident", "get_native_id"), _THREAD),
    sys._getframe: _CALLERS,
}

NAMES = frozenset(
    {
        "stat", "lstat", "listdir", "scandir", "access", "readlink", "getcwd", "getcwdb", "cwd",
        "exists", "isfile", "isdir", "is_file", "is_dir", "getsize", "getmtime", "iterdir", "glob",
        "walk", "abspath", "resolve", "system", "fork", "subprocess", "Popen", "check_output",
        "get_ident", "get_native_id", "current_thread", "currentThread", "_getframe", "stack",
        "currentframe", "loadtxt", "genfromtxt",
    }
)  # fmt: skip
"""Code that names none of these asks for none of it."""


def asked_by_user(frame: FrameType | None, called: Any) -> str | None:
    """Say what the user's code asks by this call; None where somebody asks for himself."""
    what = ASKED.get(called)
    if what is None:
        return None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not is_library(module) and is_own(frame.f_code.co_filename):
            return what
        if not any(module == door or module.startswith(f"{door}.") for door in _DOORS[what]):
            return None
        # Threads ask it too when they are made, started and waited for, and keep it for themselves.
        if what is _THREAD and frame.f_code.co_name not in _OF_THE_THREAD:
            return None
        frame = frame.f_back
    return None
