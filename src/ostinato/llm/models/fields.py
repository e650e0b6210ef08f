"""Typed reading of a config.json: each value is there and of its kind, or one clear refusal.

A null counts as absent, as in transformers, except where null is an answer of its own (`window`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ostinato.errors import UsageError
from ostinato.llm.refusals import shown

MOST_LAYERS = 1024
"""The deepest model known has fewer."""
MOST = 2**31 - 1
"""Of any size: kernels count in 32 bits."""


def refuse(problem: str) -> UsageError:
    """Build the error for a config that this engine cannot compute."""
    return UsageError(
        f"the model's config.json cannot be followed: {problem}",
        code="OST5202",
        remedy="correct config.json if it is wrong; otherwise use the model in transformers, "
        "where ostinato.accelerate(model) speeds it up",
    )


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one config, or of a part of it."""

    values: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.values)

    def count(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST
    ) -> int:
        """Return a whole number of at least `least` and at most `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise refuse(f"{key} is {shown(value)}, not a whole number of at least {least}")
        if value > most:
            raise refuse(f"{key} is {shown(value)}, and at most {most} can be")
        return value

    def number(
        self, key: str, default: float | None = None, *, least: float = 0.0, most: float = inf
    ) -> float:
        """Return a finite number above 0, from `least` to `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
            raise refuse(f"{key} is {shown(value)}, not a positive number")
        if not least <= value <= most:
            wanted = f"at least {least:g}" if value < least else f"at most {most:g}"
            raise refuse(f"{key} is {shown(value)}, and can be {wanted}")
        try:
            return float(value)
        except OverflowError:
            raise refuse(f"{key} is {shown(value)}, which is no number of a model") from None

    def optional(self, key: str) -> float | None:
        """Return a positive number; None if the config does not say."""
        return None if self.values.get(key) is None else self.number(key)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise refuse(f"{key} is {value!r}, neither true nor false")
        return value

    def text(self, key: str, default: str) -> str:
        """Return a string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise refuse(f"{key} is {value!r}, not a string")
        return value

    def window(self, key: str, default: int) -> int | None:
        """Return a number of tokens; null means that there is no window."""
        return None if self.values.get(key, default) is None else self.count(key, default)

    def part(self, key: str) -> Fields:
        """Return the object under `key`; empty if there is none."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise refuse(f"{key} is {value!r}, not an object")
        return Fields(value)

    def layer_types(self, layers: int) -> list[str] | None:
        """Return what kind of attention each layer has; None if the config does not say."""
        value = self.values.get("layer_types")
        if value is None:
            return None
        known = {"full_attention", "sliding_attention"}
        if not isinstance(value, list) or len(value) != layers or not known.issuperset(value):
            raise refuse(f"layer_types is {value!r}, not one of {sorted(known)} for each layer")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Return one token or several; none if the config does not say."""
        value = self._value(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
            raise refuse(f"{key} is {value!r}, neither a token nor a list of tokens")
        return tuple(ids)

    def dtype(self) -> str | None:
        """Return the number type that the weights were saved in, if it is named."""
        value = self.text("dtype", self.text("torch_dtype", ""))
        return value.removeprefix("torch.") or None

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise refuse(f"it lacks {key}")
        return value
