"""What the engine says of a request, without the words of the libraries that it uses."""

from __future__ import annotations

import re

_LINE = re.compile(r"at (\d+)\(\d+\): ")
_DETAIL = ": "
_COMPILERS = "; in the compiler's words: "
_CUT = frozenset({"OST5061", "OST5064", "OST5065", "OST5141", "OST5142"})
"""Here the cause in a library's words follows the fact; those are in the engine's log."""


def line_of(message: str) -> int | None:
    """Return the line of a grammar of several rules that a refusal is about; None: it has none."""
    found = _LINE.search(message)
    return None if found is None else int(found.group(1))


def in_our_words(code: str, message: str) -> str:
    """Return a refusal of the engine without the words of the libraries that it uses."""
    if code == "OST5062":
        return message.partition(_COMPILERS)[0]
    cut = code in _CUT or (code == "OST5060" and "not JSON" in message)
    return message.partition(_DETAIL)[0] if cut else message
