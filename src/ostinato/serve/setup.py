"""What the supervisor tells a process that it starts, and how that process knows it is gone.

The setup is the first line of the process's standard input, which stays open for as long as the
supervisor lives: the end of it is the end of the process, however the supervisor went.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from ostinato.serve.settings import Settings


class Setup(msgspec.Struct):
    """For one process.

    Attributes:
        run: Folder of the service's sockets.
        name: Of this process.
        listen: Descriptor of the listening socket; -1 where there is none.
    """

    settings: Settings
    run: str
    name: str
    listen: int = -1

    @property
    def engine_socket(self) -> Path:
        """Where the engine listens."""
        return Path(self.run) / "engine.sock"

    @property
    def heartbeat(self) -> Path:
        """What this process touches for as long as it is well; see `heartbeat`."""
        return Path(self.run) / f"{self.name}.heartbeat"

    @property
    def metrics_socket(self) -> Path:
        """Where this process gives its metrics; one that is started again is another process."""
        return Path(self.run) / f"{self.name}.{os.getpid()}.metrics"

    def to_line(self) -> bytes:
        """Return it as one line."""
        return msgspec.json.encode(self) + b"\n"


def read_setup(source: int = 0) -> Setup:
    """Read the line that the supervisor wrote to descriptor `source`."""
    # Raw: a thread that waits in a buffered reader is an error when the interpreter ends.
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(source, 1 << 16)
        if not data:
            break
        line += data
    return msgspec.json.decode(bytes(line), type=Setup)


def tell_stacks() -> None:
    """Write what every thread does to standard error whenever SIGUSR1 comes, also in a hang."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def watch_parent(gone: Callable[[], object], source: int = 0) -> None:
    """Call `gone`, in a thread, when the supervisor is."""

    def wait() -> None:
        while os.read(source, 1 << 10):
            pass
        gone()

    threading.Thread(target=wait, name="ostinato-parent", daemon=True).start()
