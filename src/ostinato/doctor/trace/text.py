"""The text of a file piece by piece, unpacked where it is packed.

The standard library's gzip reader gives nothing of a chunk in which the file breaks off; here what
could be unpacked is given, and the reader finds that its text has no end.
"""

from __future__ import annotations

import codecs
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

_GZIP = b"\x1f\x8b"
_WITH_GZIP_HEAD = 16 + zlib.MAX_WBITS


class TextSource:
    """Reads a text file, packed by gzip or not.

    Args:
        chunk: Bytes of the file to take at a time.
    """

    def __init__(self, path: Path, chunk: int) -> None:
        self._file = path.open("rb")
        self._chunk = chunk
        self._is_packed = self._file.read(2) == _GZIP
        self._file.seek(0)
        self._unpacker = zlib.decompressobj(_WITH_GZIP_HEAD)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self) -> str:
        """Return the next piece; an empty one only at the end.

        Raises:
            zlib.error: What is packed is damaged.
        """
        while not self._ended:
            raw = self._file.read(self._chunk)
            if not raw:
                self._ended = True
                text = self._decoder.decode(b"", final=True)
                if text:
                    return text
                break
            text = self._decoder.decode(self._unpack(raw) if self._is_packed else raw)
            if text:
                return text
        return ""

    def _unpack(self, raw: bytes) -> bytes:
        parts = []
        while raw:
            if self._unpacker.eof:  # files may be packed one behind the other
                self._unpacker = zlib.decompressobj(_WITH_GZIP_HEAD)
            parts.append(self._unpacker.decompress(raw))
            raw = self._unpacker.unused_data
        return b"".join(parts)
