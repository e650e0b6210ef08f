"""How long a thread ran, and how long it stood ready without a CPU, as the kernel counts it."""

from __future__ import annotations

import ctypes
import os

# Called with the GIL held: `os.pread` lets it go, and in a crowd has it back 100 ms later.
_LIBRARY = ctypes.PyDLL(None)
_PREAD = _LIBRARY.pread
_PREAD.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_longlong)
_PREAD.restype = ctypes.c_ssize_t
_BUFFER = ctypes.create_string_buffer(128)  # used with the GIL held alone


class ThreadTimes:
    """The clock of one thread of this process; needs no rights.

    Raises:
        OSError: the kernel keeps no such account, or the thread has ended.
    """

    def __init__(self, native_id: int) -> None:
        path = f"/proc/self/task/{native_id}/schedstat"
        self._file = int(_LIBRARY.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC))
        if self._file < 0:
            raise OSError(f"{path} cannot be read")

    def read(self) -> tuple[int, int] | None:
        """Return the ns that it ran and stood ready so far; None once it has ended."""
        length = _PREAD(self._file, _BUFFER, len(_BUFFER), 0)
        if length <= 0:
            return None
        words = _BUFFER.raw[:length].split()
        return int(words[0]), int(words[1])

    def close(self) -> None:
        """Let go of the file; a program that closes every descriptor may have done so."""
        try:
            os.close(self._file)
        except OSError:
            return
