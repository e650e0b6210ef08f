"""Read the events of a Chrome trace one by one, whatever the size of the file.

The standard library reads a JSON document whole; a trace of a minute can be gigabytes. So the text
goes through a window of a few megabytes, and each event is decoded by itself. Where the file breaks
off, the events until then are kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ostinato.doctor.trace.text import TextSource

_CHUNK = 1 << 20
_LONGEST = 64 << 20
"""Characters of one event, or of one value of the head; no trace of torch comes near."""
_LONGEST_WORD = 24
"""Characters of the longest number or word that may be cut by the end of the window."""
_SPACE = " \t\r\n,"
_EVENTS = "traceEvents"


class ChromeStream:
    """The events of one file, and what stands around them.

    Attributes:
        head: The other values of the document, such as deviceProperties.
        damage: What is wrong with the file, in one sentence; empty where it is whole.
        events: How many were read.
    """

    def __init__(self, path: Path) -> None:
        self.head: dict[str, Any] = {}
        self.damage = ""
        self.events = 0
        self.is_trace = False
        self._path = path
        self._decoder = json.JSONDecoder()
        self._buffer = ""
        self._at = 0
        self._source: TextSource | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each event; begins anew every time."""
        self._buffer, self._at, self.events, self.damage = "", 0, 0, ""
        try:
            with TextSource(self._path, _CHUNK) as source:
                self._source = source
                yield from self._document()
        except (OSError, EOFError, zlib.error) as error:
            self.damage = f"it breaks off after {self.events} events: {error}"
        except json.JSONDecodeError as error:
            self.damage = f"it is broken after {self.events} events: {error.msg}"
        finally:
            self._source = None

    def _document(self) -> Iterator[dict[str, Any]]:
        first = self._next_character()
        if first == "[":  # the other form that Chrome reads: the events alone
            self._at += 1
            yield from self._array()
            return
        if first != "{":
            raise json.JSONDecodeError("it is no JSON object", self._buffer[:1], 0)
        self._at += 1
        while (character := self._next_character()) not in ("}", ""):
            if character != '"':
                raise json.JSONDecodeError("a name was expected", "", 0)
            name = self._value()
            if self._next_character() != ":":
                raise json.JSONDecodeError("a colon was expected", "", 0)
            self._at += 1
            if name == _EVENTS and self._next_character() == "[":
                self._at += 1
                yield from self._array()
            else:
                self.head[name] = self._value()
        if character == "":
            raise EOFError("the end is missing")

    def _array(self) -> Iterator[dict[str, Any]]:
        self.is_trace = True
        while (character := self._next_character()) != "]":
            if character == "":
                raise EOFError("the end is missing")
            event = self._value()
            self.events += 1
            if isinstance(event, dict):
                yield event
        self._at += 1

    def _next_character(self) -> str:
        """Skip spaces and commas; return the character there, or "" at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        """Decode the value that begins here, reading on as long as it is not whole."""
        self._next_character()
        wanted = 0
        while True:
            # Decoding half an event again and again is quadratic, so the window doubles.
            while len(self._buffer) - self._at < wanted and self._more():
                pass
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise json.JSONDecodeError("it is nested too deep", "", 0) from None
            except json.JSONDecodeError as error:
                size = len(self._buffer) - self._at
                if size > _LONGEST or not self._is_cut(error):
                    raise
                if not self._more():
                    raise EOFError("it ends in the middle of an event") from None
                wanted = 2 * size
                continue
            # A number near the end of the window may go on behind it.
            is_number = isinstance(value, int | float)
            if is_number and end + _LONGEST_WORD > len(self._buffer) and self._more():
                continue
            self._at = end
            return value

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the text only ends too early there, rather than holding nonsense."""
        is_open = error.msg.startswith(("Unterminated string", "Invalid \\"))
        return is_open or error.pos >= len(self._buffer) - _LONGEST_WORD

    def _more(self) -> bool:
        if self._source is None:
            return False
        chunk = self._source.read()
        if not chunk:
            return False
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return True
