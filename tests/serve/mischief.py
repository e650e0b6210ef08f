"""Clients of every kind, and what befalls a service while they are there.

Each client ends by itself, whatever it is answered: one that does not has met a hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
from collections import Counter
from typing import Any

import psutil

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
SAID = [{"role": "user", "content": "hello"}]
BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": [1, 2, 3], "ignore_eos": True}),
    ("/v1/completions", {"prompt": ["a", "bb"], "n": 2, "ignore_eos": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": "x" * 200, "stop": ["a"]}),
    ("/v1/chat/completions", {"messages": SAID}),
    ("/v1/chat/completions", {"messages": SAID, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/responses", {"input": "hello", "store": False}),
)
PAGES = ("/metrics", "/healthz", "/readyz", "/v1/models", "/ui/numbers")
WAYS = ("reads", "goes", "breaks off", "reads slowly", "never reads", "closes its half", "looks")
WEIGHTS = (8, 5, 1, 1, 1, 1, 2)
ENDINGS = (b"[DONE]", b"response.completed", b"response.incomplete", b'"error"', b"event: error")


def request(path: str, body: dict[str, Any] | None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    )
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def asked(chance: random.Random) -> tuple[str, dict[str, Any]]:
    path, body = chance.choice(BODIES)
    most = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return path, {**body, most: chance.choice((1, 5, 20, 60)), "stream": chance.random() < 0.7}


async def meet(port: int, chance: random.Random, ends: Counter[str]) -> None:
    """Be one client, of any kind."""
    [way] = chance.choices(WAYS, WEIGHTS)
    path, body = asked(chance)
    if way == "looks":
        wanted = request(chance.choice(PAGES), None)
    elif way in ("reads slowly", "never reads"):
        wanted = request("/v1/completions", {**BODIES[0][1], "max_tokens": 300, "stream": True})
    else:
        wanted = request(path, body)
    connection = socket.socket()
    connection.setblocking(False)
    if way in ("reads slowly", "never reads"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    except OSError:
        connection.close()
        ends[f"{way}: refused"] += 1
        return
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        ends[f"{way}: {await _go(way, wanted, reader, writer, chance)}"] += 1
    except OSError as error:
        ends[f"{way}: {type(error).__name__}"] += 1
    finally:
        writer.transport.abort()


async def _go(
    way: str,
    wanted: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    chance: random.Random,
) -> str:
    if way == "breaks off":
        wanted = wanted[: chance.randrange(len(wanted))]
    writer.write(wanted)
    if way in ("goes", "breaks off", "never reads"):
        await asyncio.sleep(chance.random() ** 2 * 2)
        return "gone"
    if way == "closes its half":
        writer.write_eof()
    got = b""
    while data := await reader.read(256 if way == "reads slowly" else 1 << 16):
        got += data
        if way == "reads slowly":
            await asyncio.sleep(0.001)
    status = got[9:12].decode() or "closed"
    if status == "200" and b"text/event-stream" in got[:400]:
        return "whole" if any(ending in got for ending in ENDINGS) else "cut"
    return status


async def befall(processes: list[psutil.Process], seconds: float, chance: random.Random) -> None:
    """Stop processes for moments, now this one and now that, and let them go on."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(chance.random())
        one = chance.choice(processes)
        for _ in range(chance.choice((1, 1, 20))):
            with contextlib.suppress(psutil.Error):
                one.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(chance.choice((0.001, 0.02, 0.3)))
            finally:
                with contextlib.suppress(psutil.Error):
                    one.send_signal(signal.SIGCONT)
