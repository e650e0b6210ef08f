"""Server-sent events: an answer as it is written.

The head and the first frame leave when the first block is there, so a request that fails before
that is answered with a status that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """A response that is sent frame by frame.

    Args:
        frames: Each whole events.
        ended: Called when the last was sent, or the client has gone.
    """

    def __init__(self, frames: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        self._frames, self._ended = frames, ended
        self.status_code = 200
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEAD)})
            async for frame in self._frames:
                if not frame:  # what came says nothing yet, such as half a character
                    continue
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ended()
