"""How the processes of one service give each other their metrics.

Each listens on a Unix socket in the service's own folder and answers whoever connects with its
snapshot. Whoever was asked for /metrics asks all of them: the answer is the sum over the service,
and a process that hangs costs a fraction of a second and its own numbers, nothing else.

What was told of a process is written down beside its socket. When it has died, whichever front end
is asked next goes on from what was told last: a sum that fell would look like a restart of all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from ostinato.serve.metrics import retire

_log = logging.getLogger(__name__)
_PATIENCE_S = 0.5
_SOCKET, _TOLD = ".metrics", ".told"
Snapshot = Callable[[], bytes]


def answer_in_thread(path: Path, snapshot: Snapshot) -> None:
    """Answer whoever connects to `path`, in a thread."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(16)

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_PATIENCE_S)
                try:
                    connection.sendall(snapshot())
                except OSError:
                    continue
                except Exception:  # noqa: BLE001 - the next time they may be
                    _log.exception("the metrics of this process cannot be told")

    threading.Thread(target=answer, name="ostinato-metrics", daemon=True).start()


class Peers:
    """The processes of one service, as one of them sees the others.

    Args:
        own: Where this one answers.
        snapshot: Its numbers.
    """

    def __init__(self, own: Path, snapshot: Snapshot) -> None:
        self._own, self._snapshot = own, snapshot
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer the others."""
        self._own.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, str(self._own))

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()

    async def gather(self) -> list[bytes]:
        """Return the snapshots of all processes: this one's first, those that died at the end."""
        others = [path for path in self._own.parent.glob(f"*{_SOCKET}") if path != self._own]
        asked = await asyncio.gather(*(self._ask(path) for path in sorted(others)))
        told = {path: each for path, each in zip(sorted(others), asked, strict=True) if each}
        told[self._own] = self._snapshot()
        dead = await asyncio.to_thread(_remember, told)
        living = [told.pop(self._own), *told.values()]
        return [*living, retire(dead)] if dead else living

    async def _ask(self, path: Path) -> bytes:
        """Return a process's snapshot; nothing of one that has died or hangs."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(str(path))
                try:
                    return await reader.read(-1)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._snapshot())
        writer.close()


def _remember(told: dict[Path, bytes]) -> list[bytes]:
    """Write down what was told; return what was told last of those who tell nothing now."""
    for path, snapshot in told.items():
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fresh.write_bytes(snapshot)
        os.replace(fresh, path.with_suffix(_TOLD))
    folder = next(iter(told)).parent
    silent = [path for path in folder.glob(f"*{_TOLD}") if path.with_suffix(_SOCKET) not in told]
    return [path.read_bytes() for path in sorted(silent)]
