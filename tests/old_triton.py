"""Triton before 3.7 beside NumPy 2.4: its interpreter indexes with an array of one element."""

from __future__ import annotations

from importlib import metadata
from typing import Any


def mend_interpreter() -> None:
    """Let loops whose ends a kernel reads run under the interpreter of an old Triton."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return
    if tuple(map(int, version.split(".")[:2])) >= (3, 7):
        return
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch
