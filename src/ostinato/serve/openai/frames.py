"""The JSON of chunks and answers, written from pieces that are rendered once for each request.

A chunk differs from the one before in its text alone, so the rest is kept as bytes: a frame costs
one JSON string and one join, whatever the model or the id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_json = msgspec.json.Encoder().encode


class ChunkFrames:
    """Chunks of one chat or completion.

    Args:
        head: What every chunk says: id, object, created, model.
        field: Opens what is said: `"delta":{"content":` or `"text":`.
        close: Closes it.
        extra: What ends a chunk that is not the last: `"usage":null` where usage was asked for.
    """

    def __init__(
        self, head: Mapping[str, Any], field: bytes, close: bytes, *, with_usage: bool
    ) -> None:
        self._open = b"data: " + _json(head)[:-1] + b',"choices":['
        self._field, self._close = field, close
        self._end = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"
        self._heads: dict[int, bytes] = {}

    def text(self, index: int, text: str) -> bytes:
        """Return the frame of some text."""
        return (
            self._head(index)
            + self._field
            + _json(text)
            + self._close
            + b',"logprobs":null,"finish_reason":null}'
            + self._end
        )

    def chunk(
        self, index: int, said: bytes, finish: str | None = None, logprobs: Any = None, **more: Any
    ) -> bytes:
        """Return the frame of anything else.

        Args:
            said: JSON of what is said, with its name: `"delta":{}`.
        """
        rest = {"logprobs": logprobs, "finish_reason": finish, **more}
        return self._head(index) + said + b"," + _json(rest)[1:] + self._end

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """Return the last frame, with how many tokens it all took."""
        return self._open + b'],"usage":' + _json(usage) + b"}\n\n"

    def _head(self, index: int) -> bytes:
        head = self._heads.get(index)
        if head is None:
            head = self._heads[index] = self._open + b'{"index":' + str(index).encode() + b","
        return head


def delta(**fields: Any) -> bytes:
    """Return the JSON of a chat chunk's delta, with its name."""
    return b'"delta":' + _json(fields)


def text_field(text: str) -> bytes:
    """Return the JSON of a completion chunk's text, with its name."""
    return b'"text":' + _json(text)


def usage(prompt_tokens: int, new_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return how many tokens a request took."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens, "audio_tokens": 0},
    }
