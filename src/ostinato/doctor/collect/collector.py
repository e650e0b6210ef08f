"""What every collector promises to the watch."""

from __future__ import annotations

from typing import Any, Protocol


class Collector(Protocol):
    """Records one kind of evidence.

    Attributes:
        name: Its word in `Evidence.collected`.
    """

    name: str

    def start(self) -> None:
        """Begin; an exception means that this collector is left out, and why."""

    def stop(self) -> None:
        """End, leaving the process as it was found."""

    def fields(self) -> dict[str, Any]:
        """Return what was seen, by the fields of `Evidence`; asked once, after `stop`."""
