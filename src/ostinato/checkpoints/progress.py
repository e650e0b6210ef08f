"""How long work tells that it advances: a plain function, so that this package draws nothing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it done, 0 to 1."""


def silent(what: str, fraction: float) -> None:
    """Report nothing."""
