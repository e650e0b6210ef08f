"""The answers to a file of prompts, written line by line by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from ostinato.errors import UsageError


class AnswerFile:
    """Answers on disk: what is finished survives whatever happens next.

    Raises:
        UsageError: OST4033, it is no file; OST4036, another process writes to it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open: IO[str] | None = None
        self._lock: int | None = None

    def __enter__(self) -> Self:
        if self._file.exists() and not self._file.is_file():
            # A device would be replaced by a file, and a pipe be waited for.
            kind = "a folder" if self._file.is_dir() else "a device or a pipe"
            raise UsageError(
                f"{self._file} is {kind}, and answers are kept in a file",
                code="OST4033",
                remedy="name a file with --out; a rerun goes on from what stands in it",
            )
        with _telling(self._file):
            self._take_lock()
        return self

    def _take_lock(self) -> None:
        # The lock is a file of its own: the answers are replaced when they are gone on from.
        while self._lock is None:
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(lock)
                raise UsageError(
                    f"another process writes answers to {self._file}",
                    code="OST4036",
                    remedy="wait until it is done, or name another file with --out",
                ) from error
            if self._is_there(lock):
                self._lock = lock
            else:  # whoever held it has just removed it: what was locked is nobody's any more
                os.close(lock)

    @property
    def _lock_file(self) -> Path:
        return self._file.with_name(f".{self._file.name}.lock")

    def _is_there(self, lock: int) -> bool:
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self._lock_file))
        except FileNotFoundError:
            return False

    def keep(self, finished: Iterable[str]) -> None:
        """Begin with answers of an earlier run; what else the file held is dropped.

        Raises:
            OSError: The system refused.
        """
        with _telling(self._file):
            if self._file.exists():
                self._replace(finished)
            self._open = self._file.open("a", encoding="utf-8")

    def _replace(self, finished: Iterable[str]) -> None:
        part = self._file.with_name(f"{self._file.name}.part")
        with part.open("w", encoding="utf-8") as new:
            new.writelines(f"{line}\n" for line in finished)
            new.flush()
            os.fsync(new.fileno())
        part.replace(self._file)

    def add(self, line: str) -> None:
        """Write one answer, whole, at once.

        Raises:
            OSError: It could not be written, or in part: a later run drops that part.
        """
        assert self._open is not None
        with _telling(self._file):
            self._open.write(f"{line}\n")
            self._open.flush()

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            with suppress(OSError):  # what `add` could not write, it has told
                self._open.close()
            self._open = None
        if self._lock is not None:
            self._lock_file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


@contextmanager
def _telling(file: Path) -> Iterator[None]:
    """Name in what the system refuses the file that somebody asked for, whichever it was about.

    The lock and the part beside it are names that nobody gave, and of a file that is open the
    system does not say which it is.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
