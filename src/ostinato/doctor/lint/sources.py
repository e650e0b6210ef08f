"""Which files are read, and their text.

Folders are walked without following a link twice; hidden folders, virtual environments and caches
are passed by. A file named on the command line is read whatever it is called.
"""

from __future__ import annotations

import io
import os
import stat
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from ostinato.doctor.lint.facts import Problem
from ostinato.errors import UsageError

_PASSED_BY = frozenset(
    {
        "__pycache__",
        "node_modules",
        "venv",
        "env",
        "build",
        "dist",
        "site-packages",
        "__pypackages__",
    }
)
_MOST_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    Attributes:
        module: Its dotted name, by the packages that it lies in.
    """

    path: str
    module: str
    is_package: bool
    size: int


def find_sources(
    paths: Sequence[Path], exclude: Sequence[str] = ()
) -> tuple[list[Source], list[Problem]]:
    """Return the Python files at or below `paths`, each once, and what could not be looked at.

    Raises:
        UsageError: OST7000, a path does not exist.
    """
    found: dict[str, Source] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise UsageError(
                f"there is nothing at {path}",
                code="OST7000",
                remedy="name a Python file, or a folder that holds some",
            ) from None
        except OSError as error:  # a link that leads to itself, a folder without rights
            problems.append(Problem(str(path), 1, error.strerror or "it cannot be looked at"))
            continue
        if stat.S_ISDIR(mode):
            for file in walk(path, exclude, problems):
                found.setdefault(os.path.realpath(file), _source(file))
        elif not stat.S_ISREG(mode):  # opening a pipe would wait for whoever writes to it
            problems.append(Problem(str(path), 1, "it is a pipe, a socket or a device, no file"))
        elif path.suffix == ".ipynb":
            problems.append(Problem(str(path), 1, "notebooks are not read"))
        else:
            found.setdefault(os.path.realpath(path), _source(str(path)))
    return _distinct(sorted(found.values(), key=lambda source: source.path)), problems


def _distinct(sources: list[Source]) -> list[Source]:
    """Return the files with a name each: scripts of one name lie in many folders."""
    seen: Counter[str] = Counter()
    result: list[Source] = []
    for source in sources:
        times = seen[source.module]
        seen[source.module] += 1
        result.append(replace(source, module=f"{source.module}@{times}") if times else source)
    return result


def walk(root: Path, exclude: Sequence[str], problems: list[Problem]) -> Iterator[str]:
    """Yield the Python files below a folder, each folder looked at once."""
    seen: set[str] = set()

    def failed(error: OSError) -> None:
        problems.append(Problem(str(error.filename), 1, error.strerror or "it cannot be read"))

    for folder, folders, files in os.walk(root, followlinks=True, onerror=failed):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _PASSED_BY
            and not _is_environment(os.path.join(folder, name))
            and not _is_excluded(os.path.join(folder, name), exclude)
        )
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(".py") and not _is_excluded(path, exclude) and os.path.isfile(path):
                yield path


def _is_environment(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _is_excluded(path: str, exclude: Sequence[str]) -> bool:
    return any(PurePath(path).match(pattern.rstrip("/")) for pattern in exclude)


def _source(path: str) -> Source:
    absolute = Path(os.path.abspath(path))
    parts = [absolute.stem]
    is_package = absolute.stem == "__init__"
    folder = absolute.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if is_package and len(parts) > 1:
        parts.pop()
    try:
        size = absolute.stat().st_size
    except OSError:
        size = 0
    return Source(os.path.normpath(path), ".".join(parts), is_package, size)


def read_text(path: str) -> str | Problem:
    """Return a file's text, decoded as Python would, or why it cannot be had."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MOST_BYTES:
                return Problem(path, 1, f"{size} bytes are more than a source file has")
            data = file.read(_MOST_BYTES)  # it may grow meanwhile
    except OSError as error:
        return Problem(path, 1, error.strerror or "it cannot be read")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return Problem(path, 1, f"its text cannot be decoded: {error}")
    return text.replace("\r\n", "\n").replace("\r", "\n")
