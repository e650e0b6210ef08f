"""The folder in which the processes of one service find each other's sockets.

The path of a Unix socket holds about a hundred bytes, and no more. A longer one is refused where it
is used, in each process and in the system's words; so the folder is put where its paths are short.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from ostinato.errors import ResourceError

_MOST_BYTES = 103
"""Of a socket's path: Linux takes 107, macOS 103."""
_PREFIX = "ostinato-"
_ADDED_BYTES = len(f"/{_PREFIX}12345678/callable.4194304.metrics")
"""What stands behind the folder for temporary files, where it is longest."""
_ELSEWHERE = "/tmp"


@contextmanager
def run_folder() -> Iterator[str]:
    """Make a folder for sockets, and take it away with all that is in it.

    Raises:
        ResourceError: OST6005, no folder whose path is short enough can be written to.
    """
    with tempfile.TemporaryDirectory(
        prefix=_PREFIX, dir=_base(), ignore_cleanup_errors=True
    ) as folder:
        yield folder


def _base() -> str:
    usual = tempfile.gettempdir()
    most = _MOST_BYTES - _ADDED_BYTES
    for base in (usual, _ELSEWHERE):
        if len(os.fsencode(base)) <= most and os.access(base, os.W_OK | os.X_OK):
            return base
    raise ResourceError(
        f"the folder for temporary files, {usual:.60}..., has {len(os.fsencode(usual))} bytes in "
        f"its name, sockets leave room for {most}, and {_ELSEWHERE} cannot be written to",
        code="OST6005",
        remedy="set TMPDIR to a folder with a shorter path, such as /run/ostinato",
    )
