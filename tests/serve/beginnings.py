"""Whether JSON says a beginning of other JSON, and nothing else."""

from __future__ import annotations

from typing import Any


def is_beginning(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` up to some place: texts, lists and objects may be shorter."""
    if type(part) is not type(whole):
        return False
    if isinstance(part, str):
        return whole.startswith(part)
    if isinstance(part, list):
        return _of_items(part, whole)
    if isinstance(part, dict):
        names = list(part)
        return names == list(whole)[: len(names)] and _of_items(
            list(part.values()), [whole[name] for name in names]
        )
    return part == whole


def _of_items(part: list[Any], whole: list[Any]) -> bool:
    """Whether all items but the last are the same, and that one is a beginning."""
    if len(part) > len(whole):
        return False
    return not part or (
        part[:-1] == whole[: len(part) - 1] and is_beginning(part[-1], whole[len(part) - 1])
    )
