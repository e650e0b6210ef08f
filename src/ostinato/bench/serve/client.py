"""One client process: sends its share of a load, and tells what it saw. No torch.

    python -m ostinato.bench.serve.client

It takes one `Share` after the other as a line of JSON on its standard input, and answers each with
a line of JSON. All clients of a machine begin together: a share says when, on the monotonic clock
that they have in common.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from ostinato.bench.serve.output import whole
from ostinato.bench.serve.planning import Planned
from ostinato.bench.serve.replies import BadReply, EventCutter, ReplyReader
from ostinato.bench.serve.seen import CANCELLED, SHED, Seen

_LONGEST_TEXT = 200


class Share(msgspec.Struct):
    """What one client is to send.

    Attributes:
        begin_s: On the monotonic clock.
        streams: Each one's requests, one behind the other; an open loop has one stream for each.
        first_stream: The number of its first one, among those of all clients; the next are
            `stride` apart.
        body: What every request has in common, in JSON.
    """

    host: str
    port: int
    path: str
    body: dict[str, object]
    streams: list[list[Planned]]
    begin_s: float
    timeout_s: float = 300.0
    api_key: str = ""
    first_stream: int = 0
    stride: int = 1


class _Connection(asyncio.Protocol):
    """A connection that carries one request after the other."""

    def __init__(self) -> None:
        self.is_open = False
        self._heard: Callable[[bytes], None] | None = None
        self._lost: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._heard is not None:
            self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._lost is not None:
            self._lost()

    def send(
        self, request: bytes, heard: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        """Send one request; its reply is `heard`, or the connection is `lost`."""
        assert self._transport is not None
        self._heard, self._lost = heard, lost
        self._transport.write(request)

    def rest(self) -> None:
        """Keep it for the next request."""
        self._heard = self._lost = None

    def close(self) -> None:
        """End it."""
        self.rest()
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class _Watch:
    """What one reply brings, noted as it arrives."""

    def __init__(self, planned: Planned, seen: Seen, now: Callable[[], float]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reply = ReplyReader()
        self._cutter = EventCutter()
        self._planned = planned
        self._seen = seen
        self._now = now
        self._frames = 0
        self._text = b""
        self._is_ended = False

    def heard(self, data: bytes) -> None:
        """Take what arrived."""
        now = self._now()
        try:
            body = self.reply.feed(data)
        except BadReply as error:
            self._finish(f"bad reply: {error}")
            return
        self._seen.status = self.reply.status
        if self.reply.status == 200:
            for event in self._cutter.feed(body):
                self._take(event, now)
        elif len(self._text) < _LONGEST_TEXT:
            self._text += body[:_LONGEST_TEXT]
        if self.reply.is_done:
            self._finish(self._judged())

    def lost(self) -> None:
        """The connection ended."""
        self.reply.close()
        self._finish(self._judged() if self.reply.is_done else "connection lost")

    def give_up(self, kind: str) -> None:
        """Note why nobody waits any more."""
        self._finish(kind)

    def _take(self, event: bytes, now: float) -> None:
        if event == b"[DONE]":
            self._is_ended = True
            return
        if event.startswith(b'{"error":'):
            self._finish(f"error in the stream: {_said(event)}")
            return
        if b'"usage"' in event and b'"usage":null' not in event:
            tokens, is_alone = _usage(event)
            self._seen.tokens = tokens or self._seen.tokens
            if is_alone:
                return
        if self._seen.first_s is not None or _has_text(event):
            self._note_frame(now)

    def _note_frame(self, now: float) -> None:
        seen = self._seen
        if seen.first_s is None:
            seen.first_s = now
        else:
            seen.gaps_s.append(now - seen.end_s)
        seen.end_s = now
        self._frames += 1
        after = self._planned.cancel_after
        if after is not None and self._frames >= after:
            self._finish(CANCELLED)

    def _judged(self) -> str:
        if self.reply.status == 429:
            after = self.reply.headers.get("retry-after", "")
            self._seen.retry_after_s = float(after) if after.isdecimal() else None
            return SHED
        if self.reply.status != 200:
            return f"status {self.reply.status}: {_said(self._text)}"
        if not self._is_ended:
            return "cut short"
        return "" if self._seen.first_s is not None else "no text"

    def _finish(self, error: str) -> None:
        if not self.done.done():
            self._seen.error = error
            if error or not self._seen.tokens:
                self._seen.tokens = self._seen.tokens or (0 if error else self._planned.new)
            self._seen.end_s = self._seen.end_s or self._now()
            self.done.set_result(None)


class Client:
    """Sends the requests of one share."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._idle: list[_Connection] = []
        key = f"Authorization: Bearer {share.api_key}\r\n" if share.api_key else ""
        self._head = (
            f"POST {share.path} HTTP/1.1\r\nHost: {share.host}:{share.port}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\n{key}"
        ).encode()

    async def run(self) -> list[Seen]:
        """Send everything, each at its time; return what was seen, in no order."""
        share = self._share
        for stream in share.streams:
            if stream and stream[0].at_s is None:  # those of a closed loop are there beforehand
                self._idle.append(await self._connect())
        streams = [[(one, self._request(one)) for one in stream] for stream in share.streams]
        await asyncio.sleep(max(0.0, share.begin_s - time.monotonic()))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._stream(stream, share.first_stream + share.stride * place))
                for place, stream in enumerate(streams)
            ]
        for connection in self._idle:
            connection.close()
        return [seen for task in tasks for seen in task.result()]

    async def _stream(self, stream: Sequence[tuple[Planned, bytes]], number: int) -> list[Seen]:
        found = []
        for planned, request in stream:
            if planned.at_s is not None:
                await asyncio.sleep(max(0.0, planned.at_s - self._now()))
            sent_s = self._now()
            late_s = 0.0 if planned.at_s is None else sent_s - planned.at_s
            seen = Seen(sent_s, late_s, is_counted=planned.is_counted, stream=number)
            await self._ask(planned, request, seen)
            found.append(seen)
        return found

    async def _ask(self, planned: Planned, request: bytes, seen: Seen) -> None:
        watch = _Watch(planned, seen, self._now)
        try:
            async with asyncio.timeout(self._share.timeout_s), self._connection(watch) as one:
                one.send(request, watch.heard, watch.lost)
                await asyncio.shield(watch.done)  # it is settled by the watch alone
        except TimeoutError:
            watch.give_up("timeout")
        except OSError as error:
            watch.give_up(f"no connection: {type(error).__name__}")

    @asynccontextmanager
    async def _connection(self, watch: _Watch) -> AsyncIterator[_Connection]:
        while self._idle:
            found = self._idle.pop()
            if found.is_open:
                break
        else:
            found = await self._connect()
        try:
            yield found
        finally:
            if watch.reply.is_kept_alive and found.is_open:
                found.rest()
                self._idle.append(found)
            else:
                found.close()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, found = await loop.create_connection(_Connection, self._share.host, self._share.port)
        return found

    def _request(self, planned: Planned) -> bytes:
        body = self._share.body | {"max_tokens": planned.new}
        if self._share.path.endswith("/chat/completions"):
            words = " ".join(f"w{token}" for token in planned.prompt)
            body["messages"] = [{"role": "user", "content": words}]
        else:
            body["prompt"] = planned.prompt
        content = json.dumps(body, separators=(",", ":")).encode()
        return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(content), content)

    def _now(self) -> float:
        return time.monotonic() - self._share.begin_s


def _usage(event: bytes) -> tuple[int, bool]:
    """Return the tokens that a frame's usage counts, and whether it brings nothing else."""
    try:
        frame = json.loads(event)
        usage = frame["usage"]
        return (0 if usage is None else int(usage["completion_tokens"])), not frame["choices"]
    except (ValueError, KeyError, TypeError):
        return 0, False


def _has_text(event: bytes) -> bool:
    """Whether a frame brings text; a chat's first one may only say who speaks."""
    try:
        choice = json.loads(event)["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        return False
    delta = choice.get("delta")
    return bool(choice.get("text") if delta is None else delta.get("content"))


def _said(text: bytes) -> str:
    """Return what kind of error a server tells of: its code, or the beginning of its text."""
    try:
        error = json.loads(text)["error"]
        return str(error.get("code") or error.get("type") or error["message"])[:60]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:60].decode("utf-8", "replace")


def run_share(share: Share) -> list[Seen]:
    """Send one share from this process; blocks until it is over."""
    try:
        import uvloop  # half the cost of asyncio's own loop; the server's extra brings it
    except ModuleNotFoundError:
        return asyncio.run(Client(share).run())
    return uvloop.run(Client(share).run())


def main() -> None:
    """Answer each line of standard input."""
    decoder, encoder = msgspec.json.Decoder(Share), msgspec.json.Encoder()
    output = whole(sys.stdout.buffer)
    for line in sys.stdin.buffer:
        output.write(encoder.encode(run_share(decoder.decode(line))) + b"\n")
        output.flush()


if __name__ == "__main__":
    main()
