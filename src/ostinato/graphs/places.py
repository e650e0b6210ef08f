"""Places that a run reads, and containers whose length counts: what a watch compares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

# Values whose change we can name; anything else is either walked into or left alone.
PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum, torch.dtype, torch.device)
ABSENT = NotImplemented
"""Stands for "there is nothing in this place", here and in `_unchanged.c`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere a run reads: `container[key]`, or the attribute `container.key`.

    Attributes:
        container: A dict or a list; else a closure cell, a class or an object with slots.
        key: Dict key, list index, or attribute name.
        value: What was there; `ABSENT` for nothing.
        name: How to say it: "model.layers.0.weight", "scale (a global)".
    """

    container: Any
    key: Any
    value: Any
    name: str

    def now(self) -> Any:
        """Read what is there now."""
        if isinstance(self.container, dict):
            return self.container.get(self.key, ABSENT)
        if isinstance(self.container, list):
            return self.container[self.key] if self.key < len(self.container) else ABSENT
        return getattr(self.container, self.key, ABSENT)


@dataclass(frozen=True, slots=True)
class Size:
    """A container whose length counts.

    Attributes:
        held: The container.
        name: How to say it.
        keys: Of attributes, the names present; others may come unless a run reads them.
        is_of_weights: Whether it holds the parameters, buffers or parts of a module.
    """

    held: Any
    name: str
    keys: frozenset[str] | None = None
    is_of_weights: bool = False
