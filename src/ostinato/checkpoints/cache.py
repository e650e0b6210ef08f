"""The folder where converted checkpoints are kept, and how one gets there whole or not at all.

An entry is built in a temporary folder beside its final place and renamed when complete, with a
manifest of its files, their sizes and checksums. A process that dies in between leaves only a
temporary folder, which the next builder of the same entry removes: builders of one entry take turns
by a file lock that the system gives back when its holder dies. An entry whose files no longer match
its manifest (a crash before the disk had them, a bit that flipped since) is built again.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
import tempfile
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ostinato.checkpoints.json_file import read_json
from ostinato.errors import ResourceError
from ostinato.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MANIFEST = "ostinato.json"
_PIECE_BYTES = 4 << 20
_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """Return the cache folder: `OSTINATO_CACHE`, else the user's cache folder, `ostinato` in it."""
    chosen = os.environ.get("OSTINATO_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():  # the XDG rules: a relative path is ignored
        return Path(xdg) / "ostinato"
    try:
        return Path.home() / ".cache" / "ostinato"
    except RuntimeError as error:
        raise _unusable("the home folder of this user is unknown") from error


def cached(key: str, build: Callable[[Path], None], needed_bytes: int) -> Path:
    """Return the folder of entry `key`, calling `build(empty_folder)` if it is not there yet.

    `needed_bytes` of disk space must be free before a build begins.

    Raises:
        ResourceError: OST2012, the cache cannot be written or the disk is too full.
    """
    entry = cache_root() / key
    if is_whole(entry):
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _turn(entry) as is_alone:
            if not is_whole(entry):
                if (entry / MANIFEST).exists():
                    # With no logging set up this goes to stderr.
                    _log.warning("%s is damaged: it is made again", entry)
                _build(entry, build, needed_bytes, is_alone)
    except OSError as error:
        raise _unusable(f"{entry.parent}: {error.strerror or error}") from error
    return entry


def is_whole(entry: Path) -> bool:
    """Say whether every file of the entry's manifest is there with its size and checksum."""
    try:
        files = read_json(entry / MANIFEST)["files"]
        if any((entry / name).stat().st_size != said["bytes"] for name, said in files.items()):
            return False
        return all(_crc32(entry / name) == said["crc32"] for name, said in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _crc32(path: Path) -> int:
    """Return a checksum that finds damage, at the speed of the disk; it is no proof of origin."""
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _build(entry: Path, build: Callable[[Path], None], needed_bytes: int, is_alone: bool) -> None:
    if is_alone:
        _remove_leftovers(entry)
    _require_space(entry.parent, needed_bytes)
    partial = Path(tempfile.mkdtemp(prefix=f".{entry.name}.partial-", dir=entry.parent))
    try:
        build(partial)
        files = {
            path.name: {"bytes": path.stat().st_size, "crc32": _crc32(path)}
            for path in partial.iterdir()
        }
        manifest = json.dumps({"files": files}, indent=1)
        (partial / MANIFEST).write_text(manifest, encoding="utf-8")
        partial.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
        _move_into_place(partial, entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move_into_place(partial: Path, entry: Path) -> None:
    if entry.exists() and not is_whole(entry):
        shutil.rmtree(entry)
    try:
        partial.rename(entry)
    except OSError as error:
        # Without a lock, another process may have been first: its entry is as good as ours.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not is_whole(entry):
            raise


def _remove_leftovers(entry: Path) -> None:
    for leftover in entry.parent.glob(f".{entry.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _turn(entry: Path) -> Iterator[bool]:
    """Wait until no other process builds `entry`; yield whether that is certain."""
    with (entry.parent / f".{entry.name}.lock").open("a") as lock:
        yield _lock(lock.fileno())  # closing the file gives the lock back


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

    with suppress(OSError):  # some network disks have no locks; the rename is still atomic
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    return False


def _require_space(folder: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise _unusable(
            f"{folder} has {format_bytes(free)} of free disk space, "
            f"and {format_bytes(needed_bytes)} are needed"
        )


def _unusable(what: str) -> ResourceError:
    return ResourceError(
        f"the cache for converted models cannot be used: {what}",
        code="OST2012",
        remedy="set OSTINATO_CACHE to a writable folder on a disk with enough space",
    )
