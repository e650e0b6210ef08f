"""What an error of somebody else's says, whatever its class does when it is asked."""

from __future__ import annotations

from ostinato.class_name import class_name


def text_of(error: BaseException) -> str:
    """Return the message of an error; nothing where it has none, or raises when it is asked."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is told by its name then
        return ""


def words_of(error: BaseException) -> str:
    """Return the name of an error's class and its message."""
    return f"{class_name(error)}: {text_of(error)}".removesuffix(": ")
