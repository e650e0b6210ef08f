"""One front end, as the engine's process sees it: a thread that reads and one that writes.

What the engine brings is put in a queue in its own thread, which costs it less than a microsecond,
and sent by the other: all that has come by then in one write.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ostinato.serve.desk import Living, News, block_of
from ostinato.serve.wire import Ask, Cancel, Generate, Reader, ToEngine, ToFront, frame

if TYPE_CHECKING:
    from ostinato.serve.desk import Desk

_log = logging.getLogger(__name__)
_READ_BYTES = 256 * 1024
_MOST_AT_ONCE = 1024


class FrontEnd:
    """One connection.

    Attributes:
        name: Of the front end; begins the names of its requests.
        living: Its requests that have not ended.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        desk: Desk,
        lost: Callable[[FrontEnd], None],
    ) -> None:
        self.name = name
        self.living: dict[int, Living] = {}
        self._connection = connection
        self._desk = desk
        self._lost = lost
        self._out: SimpleQueue[News | ToFront | None] = SimpleQueue()

    def start(self) -> None:
        """Begin."""
        self.send([self._desk.hello(), self._desk.pulse()])
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"ostinato-{self.name}", daemon=True).start()

    def put(self, news: News) -> None:
        """Take news, in the engine's thread."""
        self._out.put(news)

    def send(self, messages: Sequence[ToFront]) -> None:
        """Send messages; never waits."""
        for message in messages:
            self._out.put(message)

    def _write(self) -> None:
        while True:
            first = self._out.get()
            batch = [first]
            while not self._out.empty() and len(batch) < _MOST_AT_ONCE:
                batch.append(self._out.get())
            if None in batch:
                return
            try:
                self._connection.sendall(frame(_messages_of(batch)))
            except OSError:  # the reader finds out too, and ends it
                return
            except Exception:  # noqa: BLE001 - what cannot be said must not be waited for
                _log.exception("front end %s cannot be told, and is left", self.name)
                self._hang_up()
                return

    def _read(self) -> None:
        reader = Reader(ToEngine)
        try:
            while data := self._connection.recv(_READ_BYTES):
                for messages in reader.feed(data):
                    for message in messages:
                        self._take(message)
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - of one front end; the others go on
            _log.exception("front end %s does not speak our language", self.name)
        self._desk.leave(self)
        self._lost(self)
        self._out.put(None)
        # One that no longer reads holds the writer up: closing alone would not wake that.
        self._hang_up()
        self._connection.close()

    def _hang_up(self) -> None:
        with suppress(OSError):  # the other end was quicker
            self._connection.shutdown(socket.SHUT_RDWR)

    def _take(self, message: ToEngine) -> None:
        if isinstance(message, Generate):
            self._out.put(self._desk.submit(message, self))
        elif isinstance(message, Cancel):
            self._desk.cancel(message.keys, self)
        else:
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()

    def _answer(self, asked: Ask) -> None:
        self._out.put(self._desk.answer(asked))


def _messages_of(batch: Sequence[News | ToFront | None]) -> list[ToFront]:
    return [block_of(*one) if isinstance(one, tuple) else one for one in batch if one]
