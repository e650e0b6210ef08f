"""Which beginning of JSON can be told, so that it can be closed without a word of our own.

The arguments of a tool call are streamed as they are written, and what was sent cannot be taken
back. When the answer's last token comes in the middle of them, whoever joins the pieces is to get
JSON that reads, and nothing in it that the model did not say. So a piece is told only up to where a
quote and brackets make it whole: a key waits for its value to begin, a number for its end (12 may
be the beginning of 123), an escape for its last letter.
"""

from __future__ import annotations

from enum import Enum, auto

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


_CLOSABLE = (_Expects.FIRST_KEY, _Expects.FIRST_ITEM, _Expects.NEXT)


class JsonCloser:
    """Follows one JSON value as it is written.

    Attributes:
        is_whole: Whether the value has ended; what comes behind it is not looked at.
        has_begun: Whether anything of it can be told.
    """

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expects = _Expects.VALUE
        self._string = False
        self._escape = ""
        self._surrogate = False
        self._is_key = False
        self._scalar = ""
        self._held = ""
        self._told = 0  # how many letters of what is held can be told
        self.is_whole = False
        self.has_begun = False

    def feed(self, text: str) -> int:
        """Take more of it; return how many letters belong to the value."""
        before = len(self._held)
        for at, letter in enumerate(text):
            if not self._step(letter, before + at):
                text = text[:at]
                break
            if self.is_whole:
                text = text[: at + 1]
                break
        self._held += text
        return len(text)

    def take(self) -> str:
        """Return what can be told now, and has not been."""
        told, self._held = self._held[: self._told], self._held[self._told :]
        self._told = 0
        return told

    def closing(self) -> str:
        """Return what makes whole what has been told."""
        if self.is_whole or not self.has_begun:
            return ""
        quote = '"' if self._string and not self._is_key else ""
        return quote + "".join("}" if opened == "{" else "]" for opened in reversed(self._stack))

    def _step(self, letter: str, at: int) -> bool:
        """Take a letter; False if it is the first one behind the value."""
        if self._string:
            self._in_string(letter)
        elif self._scalar and letter not in ",]}" + _BLANKS:
            self._scalar += letter
        else:
            if self._scalar:  # a number has ended, and what ends it may have to wait
                self._scalar = ""
                self._tell(at)
                self.is_whole = not self._stack
                if self.is_whole:
                    return False
            self._between(letter)
        if self._can_be_closed():
            self._tell(at + 1)
        return True

    def _tell(self, letters: int) -> None:
        self._told = letters
        self.has_begun = True

    def _can_be_closed(self) -> bool:
        if self._string:
            return not (self._is_key or self._escape or self._surrogate)
        if self._scalar:
            return self._scalar in _WORDS
        return self._expects in _CLOSABLE

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
