"""Which shapes of the decode step are in use, and how often: what to record first next time.

Arithmetic and a small file. The core notes the shape of each launch; when there is nothing to do,
it records the hottest shapes that have no recording yet.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

from ostinato.checkpoints.json_file import read_json
from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.refusals import shown

_log = logging.getLogger(__name__)
_VERSION = 2  # 1 had another list of levels


@dataclass(frozen=True, slots=True)
class Shape:
    """What a recording of the step is keyed by.

    Attributes:
        rows: Rows, rounded up to a power of two.
        pages: Pages of the longest row, rounded up likewise.
        level: What sampling computes, a `Level` as a number.
        with_logprobs: Whether some row reports log probabilities.
    """

    rows: int
    pages: int
    level: int
    with_logprobs: bool = False


class ShapeProfile:
    """How often each shape was launched; it outlives the engine in a file."""

    def __init__(self) -> None:
        self._launches: Counter[Shape] = Counter()

    def note(self, shape: Shape) -> None:
        """Count one launch."""
        self._launches[shape] += 1

    def hottest(self) -> list[Shape]:
        """Return the shapes seen, the most frequent first; among equals, the smaller."""
        return sorted(self._launches, key=lambda shape: (-self._launches[shape], astuple(shape)))

    def keep(self, file: Path) -> None:
        """Do as `save` at the end of an engine, where a disk that is full is told in the log."""
        try:
            self.save(file)
        except OSError as error:
            _log.error("the shape profile %s could not be written: %s", file, error)

    def save(self, file: Path) -> None:
        """Write the profile, whole or not at all."""
        shapes = [[*astuple(shape), self._launches[shape]] for shape in self.hottest()]
        beside = _beside(file)
        try:
            beside.write_text(json.dumps({"version": _VERSION, "shapes": shapes}), encoding="utf-8")
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def load(cls, file: Path) -> ShapeProfile:
        """Read a profile; an empty one if there is none, or none that can be read.

        A profile makes a start quicker and nothing else, so a broken one is told in the log only.
        """
        profile = cls()
        if not file.is_file():
            return profile
        try:
            content = read_json(file)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']}")
            for rows, pages, level, with_logprobs, launches in content["shapes"]:
                shape = Shape(int(rows), int(pages), int(level), bool(with_logprobs))
                profile._launches[shape] = int(launches)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            _log.warning("the shape profile %s cannot be read and is not used: %s", file, error)
            return cls()
        return profile


def check_place(place: str | Path) -> Path:
    """Return the file at `place`, known to be one that can be written.

    Raises:
        UsageError: OST5031, it is a folder, its folder is missing or nothing can be written there.
        WrongTypeError: OST5031, no path.
    """
    if not isinstance(place, str | Path):
        raise WrongTypeError(
            f"shape_profile must be the path of a file, got {shown(place)}",
            code="OST5031",
            remedy="pass a path such as 'shapes.json', or leave it out",
        )
    file = Path(place).expanduser()
    if file.exists() and not file.is_file():
        raise _no_place(f"shape_profile is {file}, which is {_kind(file)}, not a file")
    if not file.parent.is_dir():
        raise _no_place(f"shape_profile is {file}, and there is no folder {file.parent}")
    trial = _beside(file)
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise _no_place(
            f"shape_profile is {file}, and nothing can be written there: {error}"
        ) from error
    return file


def _beside(file: Path) -> Path:
    """Return a name of this thread's own in the same folder."""
    return file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}.part")


def _kind(file: Path) -> str:
    return "a folder" if file.is_dir() else "a device or a pipe"


def _no_place(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST5031",
        remedy="name a file in a folder that exists and can be written, or leave it out",
    )
