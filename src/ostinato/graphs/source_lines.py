"""Which line of the user's code is running.

A refusal is only useful if it names the line to change. That line is the innermost frame which
belongs neither to torch nor to Ostinato nor to Python's own library. `observe` asks while the line
runs, the backends ask a traceback.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from types import FrameType, TracebackType

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OSTINATO = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.abspath(sysconfig.get_path("stdlib")) + os.sep
_INSTALLED = f"{os.sep}site-packages{os.sep}"  # below the standard library, and no part of it
# Of torch, what users call by name and which does much more: layers, losses, distributions.
_DEEP = tuple(_TORCH + part + os.sep for part in ("nn", "distributions", "optim", "ao"))
_CALLS_MODULES = os.path.join("nn", "modules", "module.py")
_LONGEST = 100  # characters of code shown


def running_line() -> str | None:
    """Return the user's line that runs now, as "model.py:88 `x.item()`"; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return line_at(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def line_in_torch() -> str | None:
    """Return torch's own line that runs now, where it lies deep inside of what the user called.

    Such as "torch/distributions/distribution.py:68 `if not valid.all():`". None where the user's
    line does it itself, or calls what is named for it: `x.unique()`, `print(x)`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        filename = frame.f_code.co_filename
        if filename.startswith(_DEEP) and not filename.endswith(_CALLS_MODULES):
            told = line_at(filename, frame.f_lineno)
            inside = os.path.dirname(os.path.relpath(filename, os.path.dirname(_TORCH[:-1])))
            return f"{inside.replace(os.sep, '/')}/{told}"
        frame = frame.f_back
    return None


def users_stacklevel() -> int:
    """Return the `stacklevel` at which the caller's `warnings.warn` names the user's line."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    return level


def raising_line(traceback: TracebackType | None) -> str | None:
    """Return the innermost user's line of a traceback; None if every frame is torch's or ours."""
    found = None
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_users(filename):
            found = line_at(filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def is_users(filename: str) -> bool:
    """Whether a file holds the user's code: neither torch's nor ours nor Python's own."""
    if filename.startswith(_STANDARD):
        return _INSTALLED in filename and not filename.startswith((_TORCH, _OSTINATO))
    return not filename.startswith((_TORCH, _OSTINATO, "<frozen", "<ostinato"))


def is_own(filename: str) -> bool:
    """Whether a file is the user's own: of no installed package either."""
    return is_users(filename) and _INSTALLED not in filename


def line_at(filename: str, line: int) -> str:
    """Return a line of source as "model.py:88 `x.item()`"."""
    place = f"{os.path.basename(filename)}:{line}"
    code = linecache.getline(filename, line).strip()
    if len(code) > _LONGEST:
        code = code[: _LONGEST - 1] + "…"
    return f"{place} `{code}`" if code else place
