"""JSON that somebody else wrote: what cannot be read is a `ValueError`, whatever is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def parse_json(text: str | bytes) -> Any:
    """Return the value that `text` stands for.

    Raises:
        ValueError: It is no JSON, not in UTF-8, or nested too deep to be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_json(file: Path) -> Any:
    """Return the value in `file`.

    Raises:
        OSError: The file cannot be read.
        ValueError: As `parse_json`.
    """
    return parse_json(file.read_text(encoding="utf-8"))
