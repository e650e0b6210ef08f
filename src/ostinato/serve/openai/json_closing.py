"""What makes JSON whole that was cut off anywhere.

The arguments of a tool call are streamed as they are written. When the answer's last token comes in
the middle of them, what was sent cannot be taken back, but it can be closed: whoever joins the
pieces always gets JSON that reads, and a finish reason that says it was cut.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = ("true", "false", "null")
_BLANKS = " \t\n\r"


class _Expects(Enum):
    """What may come next in a container, or at the top."""

    VALUE = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    FIRST_ITEM = auto()
    NEXT = auto()


class JsonCloser:
    """Follows one JSON value as it is written.

    Attributes:
        is_whole: Whether the value has ended; what comes behind it is not looked at.
    """

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expects = _Expects.VALUE
        self._string = False
        self._escape = ""
        self._surrogate = False
        self._is_key = False
        self._scalar = ""
        self.is_whole = False

    def feed(self, text: str) -> int:
        """Take more of it; return how many letters belong to the value."""
        for at, letter in enumerate(text):
            if self._string:
                self._in_string(letter)
            elif self._scalar and letter not in ",]}" + _BLANKS:
                self._scalar += letter
                continue
            else:
                self._scalar = ""
                self._between(letter)
            if self.is_whole:
                return at + 1
        return len(text)

    def closing(self) -> str:
        """Return what makes the value whole."""
        if self.is_whole:
            return ""
        return self._open_end() + "".join(
            "}" if opened == "{" else "]" for opened in reversed(self._stack)
        )

    def _open_end(self) -> str:
        if self._string:
            return self._string_end() + (":null" if self._is_key else "")
        if self._scalar:
            return _scalar_end(self._scalar)
        if self._expects is _Expects.VALUE:
            return "null"
        if self._expects is _Expects.KEY:
            return '"":null'
        if self._expects is _Expects.COLON:
            return ":null"
        return ""

    def _string_end(self) -> str:
        if not self._escape:
            return '\\udc00"' if self._surrogate else '"'
        if self._escape == "\\":
            # A pair's second half must follow its first.
            return 'udc00"' if self._surrogate else '\\"'
        digits = self._escape[2:]
        if self._surrogate:
            return "dc00"[len(digits) :] + '"'
        rest = "0" * (4 - len(digits))
        is_high = (digits + rest)[:2].lower() in ("d8", "d9", "da", "db")
        return rest + ('\\udc00"' if is_high else '"')

    def _in_string(self, letter: str) -> None:
        if self._escape:
            self._in_escape(letter)
        elif letter == "\\":
            self._escape = "\\"
        elif letter == '"':
            self._string = False
            self._surrogate = False
            if self._is_key:
                self._expects = _Expects.COLON
            else:
                self._ended()
        else:
            self._surrogate = False

    def _in_escape(self, letter: str) -> None:
        self._escape += letter
        if self._escape[1] != "u":
            self._escape, self._surrogate = "", False
        elif len(self._escape) == 6:
            was = self._surrogate
            high = self._escape[2:4].lower() in ("d8", "d9", "da", "db")
            self._escape, self._surrogate = "", high and not was

    def _between(self, letter: str) -> None:
        if letter in _BLANKS:
            return
        if letter == '"':
            self._string = True
            self._is_key = self._expects in (_Expects.KEY, _Expects.FIRST_KEY)
        elif letter in "{[":
            self._stack.append(letter)
            self._expects = _Expects.FIRST_KEY if letter == "{" else _Expects.FIRST_ITEM
        elif letter in "}]":
            self._stack.pop()
            self._ended()
        elif letter == ":":
            self._expects = _Expects.VALUE
        elif letter == ",":
            in_object = self._stack[-1] == "{"
            self._expects = _Expects.KEY if in_object else _Expects.VALUE
        else:
            self._scalar = letter
            self._expects = _Expects.NEXT

    def _ended(self) -> None:
        self._expects = _Expects.NEXT
        self.is_whole = not self._stack


def _scalar_end(text: str) -> str:
    for word in _WORDS:
        if word.startswith(text):
            return word[len(text) :]
    return "" if _NUMBER.fullmatch(text) else "0"
