"""Where a body stops being JSON, and why: which field, which byte.

The library that reads bodies knows the byte at best, and of half a character not even that. Once it
has refused a body, it is looked at again here, string by string. What is told is told in the words
of the request: a client that cut a text in the middle of an emoji is to see which text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST_BYTES = 256 * 1024
"""Of a body that are looked at: some 50 ms at most."""
_BLANK = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\[\x20-\xff])*+')
_OTHER = re.compile(rb"[^\s{}\[\],:\"]+")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|[\x00-\xff])")
_NO_NUMBER = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class JsonFault:
    """What is wrong.

    Attributes:
        path: The field, such as "messages[0].content"; "" where it is in none.
        said: The fact and the remedy.
    """

    path: str
    said: str


def find_fault(body: bytes) -> JsonFault | None:
    """Return the first fault that can be told in a request's words; None if there is none such."""
    if body.startswith(b"\xef\xbb\xbf"):
        return JsonFault("", "it begins with a byte order mark; send it without one")
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") or body[1:2] == b"\x00":
        return JsonFault("", "it is written in UTF-16 or UTF-32; send it in UTF-8")
    return _Walk(body[:_MOST_BYTES], is_all=len(body) <= _MOST_BYTES).find()


class _Walk:
    """Through one body, once."""

    def __init__(self, body: bytes, *, is_all: bool) -> None:
        self._body, self._is_all = body, is_all
        self._place: list[str | int] = []  # a key or a number for each container that is open
        self._awaits_key = False

    def find(self) -> JsonFault | None:
        body, at = self._body, 0
        while True:
            blank = _BLANK.match(body, at)
            at = blank.end() if blank else at
            if at == len(body):
                return self._ends()
            letter = body[at : at + 1]
            if letter == b'"':
                found = self._string(at)
                if isinstance(found, JsonFault):
                    return found
                at = found
            elif letter in b"{}[],:":
                self._step(letter)
                at += 1
            else:
                other = _OTHER.match(body, at)
                word = other.group() if other else letter
                if _NO_NUMBER.fullmatch(word):
                    shown = word.decode()
                    return self._fault(f"is {shown}, which is no number in JSON", "send a number")
                at += len(word)

    def _step(self, letter: bytes) -> None:
        place = self._place
        if letter == b"{":
            place.append("")
            self._awaits_key = True
        elif letter == b"[":
            place.append(0)
            self._awaits_key = False
        elif letter in b"}]" and place:
            place.pop()
            self._awaits_key = False
        elif letter == b"," and place:
            last = place[-1]
            self._awaits_key = isinstance(last, str)
            place[-1] = "" if isinstance(last, str) else last + 1

    def _string(self, at: int) -> JsonFault | int:
        """Read a string; return where it ends."""
        found = _STRING.match(self._body, at)
        assert found is not None
        end, raw = found.end(), found.group()[1:]
        if self._awaits_key and self._place:
            self._place[-1] = raw[:_SHOWN].decode(errors="replace")
            self._awaits_key = False
        if not raw.isascii() and (
            fault := self._bytes(raw, at + 1, is_whole=end < len(self._body))
        ):
            return fault
        half = _half(raw) if b"\\" in raw else None
        if half is not None:
            shown, byte = raw[half : half + 6].decode(), at + 1 + half
            return self._fault(
                f"has half a character, {shown} at byte {byte} of the body",
                "send whole characters, or escape both halves",
            )
        if end == len(self._body):
            return self._ends() or end
        if self._body[end : end + 1] != b'"':
            return self._unescaped(end)
        return end + 1

    def _bytes(self, raw: bytes, start: int, *, is_whole: bool) -> JsonFault | None:
        """Look at letters beyond ASCII; the last of a part of a body may be cut."""
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if is_whole or self._is_all:
                byte = start + error.start
                what = f"is not written in UTF-8, as byte {byte} of the body shows"
                return self._fault(what, "send it in UTF-8")
        return None

    def _unescaped(self, at: int) -> JsonFault:
        code = self._body[at]
        if code == 0x5C:  # a backslash before what no escape is
            return self._fault(f"has a backslash at byte {at} that escapes nothing", "write two")
        name = "NUL" if code == 0 else f"of the number {code}"
        return self._fault(
            f"has a control character, {name}, as it stands at byte {at} of the body",
            f"write \\u{code:04x}",
        )

    def _ends(self) -> JsonFault | None:
        path = self._path()
        if not self._is_all or not path:
            return None
        return JsonFault(path, f"it ends in the middle of {path}; send all of it")

    def _fault(self, what: str, remedy: str) -> JsonFault:
        path = self._path()
        return JsonFault(path, f"{path or 'it'} {what}; {remedy}")

    def _path(self) -> str:
        written = ""
        for one in self._place:
            if isinstance(one, int):
                written += f"[{one}]"
            elif one:
                written += f".{one}" if written else one
        return written


def _half(raw: bytes) -> int | None:
    """Return where the first half of a character stands that lacks the other one."""
    high: int | None = None
    after = 0
    for found in _ESCAPE.finditer(raw):
        code = int(found.group(1), 16) if found.group(1) else 0
        is_low = 0xDC00 <= code < 0xE000
        if high is not None and not (is_low and found.start() == after):
            return high
        if is_low and high is None:
            return found.start()
        high = found.start() if 0xD800 <= code < 0xDC00 else None
        after = found.end()
    return high
