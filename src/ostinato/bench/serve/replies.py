"""Takes apart what a server sends: an HTTP/1.1 reply, and the events of a stream. Pure, and cheap.

One client process follows dozens of streams with thousands of frames a second, so nothing is parsed
that is not needed: a frame's JSON is looked at only until the first text came, and at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto


class BadReply(Exception):
    """The server sent something that is no HTTP/1.1 reply."""


class _Part(Enum):
    HEAD = auto()
    SIZED = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class ReplyReader:
    """One reply, fed as bytes arrive.

    Attributes:
        status: 0 before the head is whole.
        headers: Names in lower case.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._part = _Part.HEAD
        self._buffer = bytearray()
        self._left = 0

    @property
    def is_done(self) -> bool:
        """Whether the whole reply is there."""
        return self._part is _Part.DONE

    @property
    def is_kept_alive(self) -> bool:
        """Whether the connection may be used again."""
        return self.is_done and self.headers.get("connection", "").lower() != "close"

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return those of the body among them.

        Raises:
            BadReply: It is no HTTP/1.1 reply.
        """
        self._buffer += data
        if self._part is _Part.HEAD and not self._read_head():
            return b""
        return b"".join(self._body())

    def close(self) -> None:
        """The server has closed the connection: some replies end so."""
        if self._part is _Part.UNTIL_CLOSE:
            self._part = _Part.DONE

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise BadReply(f"a reply begins with {first[:60]!r}")
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.status = int(words[1])
        if self.status < 200:  # "100 Continue": the reply itself comes behind it
            self.status = 0
            return self._read_head()
        self._begin_body()
        return True

    def _begin_body(self) -> None:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._part = _Part.CHUNK_SIZE
        elif "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
            self._part = _Part.SIZED if self._left else _Part.DONE
        else:
            self._part = _Part.DONE if self.status in (204, 304) else _Part.UNTIL_CLOSE

    def _body(self) -> Iterator[bytes]:
        while self._buffer and self._part is not _Part.DONE:
            if self._part is _Part.UNTIL_CLOSE:
                yield bytes(self._buffer)
                self._buffer.clear()
            elif self._part in (_Part.SIZED, _Part.CHUNK):
                piece = bytes(self._buffer[: self._left])
                del self._buffer[: len(piece)]
                self._left -= len(piece)
                if not self._left:
                    is_sized = self._part is _Part.SIZED
                    self._part = _Part.DONE if is_sized else _Part.CHUNK_END
                yield piece
            elif not self._read_line():
                return

    def _read_line(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if self._part is _Part.CHUNK_END:
            self._part = _Part.CHUNK_SIZE
        elif self._part is _Part.TRAILER:
            self._part = _Part.TRAILER if line else _Part.DONE
        else:
            try:
                self._left = int(line.partition(b";")[0], 16)
            except ValueError:
                raise BadReply(f"a chunk's size is {line[:20]!r}") from None
            self._part = _Part.CHUNK if self._left else _Part.TRAILER
        return True


class EventCutter:
    """Cuts the body of a stream into the data of its events."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, body: bytes) -> list[bytes]:
        """Take bytes of the body; return the data of the events that are whole now."""
        *events, self._buffer = (self._buffer + body).replace(b"\r\n", b"\n").split(b"\n\n")
        found = []
        for event in events:
            lines = [line[5:].strip() for line in event.split(b"\n") if line[:5] == b"data:"]
            if lines:
                found.append(b"\n".join(lines))
        return found
