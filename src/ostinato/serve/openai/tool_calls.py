"""Reads an answer that keeps to `tool_grammar` as it comes: text, and calls of tools.

Nothing is handed out that could turn out to be something else: the beginning of what may open a
call is held back, a call is told when its name is whole and its arguments have begun, and these as
they are written. A call that is cut off is closed and not completed; see `json_closing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from uuid import uuid4

from ostinato.serve.openai.json_closing import JsonCloser
from ostinato.serve.openai.tool_grammar import CLOSE, HEAD, MIDDLE, OPEN


@dataclass(frozen=True, slots=True)
class Said:
    """Text beside the calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call, whose arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of a call's arguments."""

    index: int
    text: str


Piece = Said | CallBegan | Arguments


class _At(Enum):
    START = auto()
    FORM = auto()
    TEXT = auto()
    HEAD = auto()
    ARGUMENTS = auto()
    TAIL = auto()


class ToolCalls:
    """One answer's.

    Args:
        has_form: Whether text keeps to a form: it may then hold what opens a call, in a string of
            its JSON, and an answer that does not begin with a call has none.
        must_call: Whether an answer is nothing but calls: cut early, it has the beginning of one,
            and no text.

    Attributes:
        count: Calls that have begun.
    """

    def __init__(
        self,
        new_id: Callable[[], str] | None = None,
        *,
        has_form: bool = False,
        must_call: bool = False,
    ) -> None:
        self._new_id = new_id or _call_id
        self._must_call = must_call
        self._at = _At.START if has_form else _At.TEXT
        self._held = ""
        self._closer = JsonCloser()
        self._name = ""
        self.count = 0

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended, if it has, in the middle of a call."""
        return self._at in (_At.HEAD, _At.ARGUMENTS)

    def push(self, text: str) -> list[Piece]:
        """Take more of the answer; return what is certain now."""
        self._held += text
        pieces: list[Piece] = []
        steps = {
            _At.START: self._start,
            _At.FORM: self._form,
            _At.TEXT: self._text,
            _At.HEAD: self._head,
            _At.ARGUMENTS: self._arguments,
            _At.TAIL: self._tail,
        }
        while steps[self._at](pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """Return text that was held back, and what closes arguments that were cut off."""
        if self._at in (_At.TEXT, _At.START):
            held, self._held = self._held, ""
            return [Said(held)] if held and not self.count and not self._must_call else []
        if self._at is _At.ARGUMENTS:
            closing = self._closer.closing()
            return [Arguments(self.count - 1, closing)] if closing else []
        return []

    def _start(self, pieces: list[Piece]) -> bool:
        if self._held.startswith(OPEN):
            self._at = _At.TEXT
        elif OPEN.startswith(self._held):
            return False
        else:
            self._at = _At.FORM
        return True

    def _form(self, pieces: list[Piece]) -> bool:
        if self._held:
            pieces.append(Said(self._held))
        self._held = ""
        return False

    def _text(self, pieces: list[Piece]) -> bool:
        at = self._held.find(OPEN)
        keep = _overlap(self._held, OPEN) if at < 0 else len(self._held) - at
        said = self._held[: len(self._held) - keep]
        self._held = self._held[len(said) :]
        if said and not self.count:  # between two calls there is a line's end, and no text
            pieces.append(Said(said))
        if at < 0:
            return False
        self._held = self._held[len(OPEN) :]
        self._at = _At.HEAD
        return True

    def _head(self, pieces: list[Piece]) -> bool:
        end = self._held.find(MIDDLE)
        if end < 0:
            return False
        self._name = self._held[len(HEAD) : end]
        self._held = self._held[end + len(MIDDLE) :]
        self._closer = JsonCloser()
        self._at = _At.ARGUMENTS
        return True

    def _arguments(self, pieces: list[Piece]) -> bool:
        is_new = not self._closer.has_begun
        self._held = self._held[self._closer.feed(self._held) :]
        said = self._closer.take()
        if said and is_new:
            pieces.append(CallBegan(self.count, self._new_id(), self._name))
            self.count += 1
        if said:
            pieces.append(Arguments(self.count - 1, said))
        if not self._closer.is_whole:
            return False
        self._at = _At.TAIL
        return True

    def _tail(self, pieces: list[Piece]) -> bool:
        end = self._held.find(CLOSE)
        if end < 0:
            return False
        self._held = self._held[end + len(CLOSE) :]
        self._at = _At.TEXT
        return True


def _call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def _overlap(text: str, mark: str) -> int:
    """Return how many of the last letters of `text` could begin `mark`."""
    for count in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:count]):
            return count
    return 0
