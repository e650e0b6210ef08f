"""What the kernel tells of one thread: how long it ran or stood ready, and in what it sleeps.

Reading again from a file that is kept open takes a third of the time of opening it. But a program
with a thousand threads needs its descriptors for itself, so that is for its owner to decide; and
one that closes every descriptor may have a file of its own under our number by now.
"""

from __future__ import annotations

import ctypes
import os
import platform
from enum import Enum

from ostinato.doctor.collect.interpreter_state import interpreter_state

# Called with the GIL held: `os.pread` lets it go, and in a crowd has it back 100 ms later.
_LIBRARY = ctypes.PyDLL(None)
_OPEN, _PREAD, _CLOSE, _READLINK = (
    *(_LIBRARY.open, _LIBRARY.pread),
    *(_LIBRARY.close, _LIBRARY.readlink),
)
_OPEN.argtypes = (ctypes.c_char_p, ctypes.c_int)
_PREAD.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_longlong)
_PREAD.restype = _READLINK.restype = ctypes.c_ssize_t
_READLINK.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine(), b"?")
_LONGEST = 192


class Sleep(Enum):
    """In what a thread sleeps, as the kernel sees it."""

    AWAKE = "awake"  # or ready to run
    FOR_THE_GIL = "for the GIL"  # on a futex with a timeout, in the memory of the interpreter
    ON_A_THREAD = "on a thread"  # on any other futex: a lock, or the end of a parallel region
    IN_A_CALL = "in a call"  # read, poll, nanosleep
    UNKNOWN = "unknown"


class ThreadTimes:
    """The clock of one thread of this process; needs no rights.

    Args:
        keep: Keep its file open until `close`.

    Raises:
        OSError: the kernel keeps no such account, or the thread has ended.
    """

    def __init__(self, native_id: int, *, keep: bool = True) -> None:
        self.native_id = native_id
        self._account = f"/proc/self/task/{native_id}/schedstat".encode()
        self._call = f"/proc/self/task/{native_id}/syscall".encode()
        self._buffer = ctypes.create_string_buffer(_LONGEST)
        self._file = _open(self._account) if keep else -1
        if self.read() is None:
            self.close()
            raise OSError(f"{self._account.decode()} cannot be read")

    def read(self) -> tuple[int, int] | None:
        """Return the ns that it ran and stood ready so far; None once it has ended."""
        words = self._words(self._file) if self._file >= 0 else self._words_of(self._account)
        is_account = len(words) == 3 and all(word.isdigit() for word in words)
        return (int(words[0]), int(words[1])) if is_account else None

    def sleep(self) -> Sleep:
        """Return in what it sleeps at this moment."""
        words = self._words_of(self._call)
        if not words or _FUTEX == b"?":
            return Sleep.UNKNOWN
        if words[0] == b"running":
            return Sleep.AWAKE
        if words[0] != _FUTEX:
            return Sleep.IN_A_CALL
        has_timeout = len(words) > 4 and words[4] != b"0x0"
        state = interpreter_state()  # where that is not known, any timeout is taken for the GIL's
        is_gil = has_timeout and (state is None or int(words[1], 16) in state)
        return Sleep.FOR_THE_GIL if is_gil else Sleep.ON_A_THREAD

    def close(self) -> None:
        """Let go of the file, unless the program has closed it and has another under its number."""
        file, self._file = self._file, -1
        if file < 0:
            return
        length = _READLINK(f"/proc/self/fd/{file}".encode(), self._buffer, _LONGEST)
        if self._buffer.raw[: max(length, 0)].endswith(f"/{self.native_id}/schedstat".encode()):
            _CLOSE(file)

    def _words_of(self, path: bytes) -> list[bytes]:
        file = _open(path)
        if file < 0:
            return []
        words = self._words(file)
        _CLOSE(file)
        return words

    def _words(self, file: int) -> list[bytes]:
        length = _PREAD(file, self._buffer, _LONGEST, 0)
        return self._buffer.raw[: max(length, 0)].split()


def _open(path: bytes) -> int:
    return int(_OPEN(path, os.O_RDONLY | os.O_CLOEXEC))
