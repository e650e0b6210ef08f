"""Read the kernel's files under a root, and keep what could not be read and why.

Everything of `ostinato doctor host` comes through here, so that a recorded tree can stand in for a
machine. Nothing raises: a container without /sys costs one line, not the report.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

_REASONS = {
    errno.ENOENT: "it is not there",
    errno.ENOTDIR: "it is not there",
    errno.ESRCH: "the process has gone",
    errno.EACCES: "no permission; run as the same user or as root",
    errno.EPERM: "no permission; run as the same user or as root",
}


@dataclass(slots=True)
class Look:
    """Where to read, and what was missing.

    Attributes:
        root: "/" on a live machine.
        missing: One sentence for each thing that could not be read, in the order met.
    """

    root: Path = Path("/")
    missing: list[str] = field(default_factory=list)

    def text(self, path: str, what: str = "") -> str | None:
        """Return the text of a file; None, noted as `what` where that is given, without one."""
        try:
            return (self.root / path.lstrip("/")).read_text("utf-8", "replace").strip()
        except (OSError, ValueError) as error:
            if what:
                self.note(what, f"{path}: {_reason(error)}")
            return None

    def number(self, path: str, what: str = "") -> int | None:
        """Return the whole number that a file holds."""
        text = self.text(path, what)
        if text is None:
            return None
        try:
            return int(text.split()[0], 0)
        except (ValueError, IndexError):
            if what:
                self.note(what, f"{path} holds {text[:40]!r}")
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none where it cannot be read."""
        try:
            return sorted(os.listdir(self.root / path.lstrip("/")))
        except OSError:
            return []

    def target(self, path: str) -> str | None:
        """Return where a link leads, such as "../../devices/pci0000:00/0000:00:01.0/…"."""
        try:
            return os.readlink(self.root / path.lstrip("/"))
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return (self.root / path.lstrip("/")).exists()

    def note(self, what: str, why: str) -> None:
        """Keep one sentence."""
        sentence = f"{what}: {why}"
        if sentence not in self.missing:
            self.missing.append(sentence)


def listed(text: str | None) -> tuple[int, ...]:
    """Read the kernel's way to list numbers: "0-3,8" is 0, 1, 2, 3, 8."""
    numbers: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def fields_of(text: str | None) -> dict[str, str]:
    """Read lines such as "Name:   value" or "name value"."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            name, _, value = line.partition(" ")
        found.setdefault(name.strip(), value.strip())
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return _REASONS.get(error.errno, os.strerror(error.errno).lower())
    return str(error)
