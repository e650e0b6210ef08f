"""Where a process writes the lines that its parent reads.

Without a buffer (PYTHONUNBUFFERED) standard output hands the system a line once and is content with
the part that it took: of a line longer than a pipe holds, whatever a signal or the event loop's own
wake-ups let through. The parent would wait for the rest for ever.
"""

from __future__ import annotations

import io
from typing import BinaryIO, cast


def whole(output: BinaryIO) -> BinaryIO:
    """Return `output`, or a buffer before it that gives it the rest of what it did not take."""
    if isinstance(output, io.RawIOBase):
        return cast("BinaryIO", io.BufferedWriter(output))
    return output
