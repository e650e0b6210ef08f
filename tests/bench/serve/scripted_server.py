"""An HTTP server on loopback that answers by a script: what a client must be able to live with."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Script = Callable[[asyncio.StreamWriter, dict[str, object]], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Scripted:
    """Attributes: port; requests: bodies that came; gone: connections that clients closed."""

    def __init__(self, script: Script) -> None:
        self.port = 0
        self.requests: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.gone = 0
        self._script = script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                size = int(
                    re.search(r"content-length: (\d+)", head.lower() + "content-length: 0")[1]
                )  # type: ignore[index]
                path = head.split()[1]
                self.paths.append(path)
                content = await reader.readexactly(size)
                if path == "/v1/models":
                    send(writer, b'{"data":[{"id":"scripted"}]}')
                    continue
                body = json.loads(content)
                self.requests.append(body)
                await self._script(writer, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone += 1
        except asyncio.CancelledError:
            pass  # the loop ends while a script still sleeps
        finally:
            writer.close()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Scripted]:
    found = Scripted(script)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


def send(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK", more: str = "") -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)


def event(writer: asyncio.StreamWriter, data: object) -> None:
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    frame = f"data: {text}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))


def text(writer: asyncio.StreamWriter, words: str) -> None:
    event(writer, {"choices": [{"text": words, "finish_reason": None}]})


def end(writer: asyncio.StreamWriter, tokens: int) -> None:
    event(writer, {"choices": [], "usage": {"completion_tokens": tokens}})
    event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")
