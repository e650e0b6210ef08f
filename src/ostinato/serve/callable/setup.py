"""What the process of a callable is started with, and what its exit status says. No torch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.faults import Failure

EXIT_FAILED: Final = 1
EXIT_UNFIT: Final = 2
EXIT_DEVICE_LOST: Final = 70
EXIT_HANGS: Final = 71


class Setup(msgspec.Struct, frozen=True):
    """What the process is started with.

    Attributes:
        factory: As `declaration.make` takes it.
        arguments: For the factory.
        socket: Path to listen on.
        name: As clients call the model; metrics are told under it, none without.
        hang_s: A batch that runs longer, and keeps others from their answers, ends the process;
            None: never.
    """

    factory: str
    socket: str
    limits: Limits
    arguments: tuple[str, ...] = ()
    name: str = ""
    hang_s: float | None = None

    @property
    def metrics_socket(self) -> Path:
        """Where this process gives its metrics; one that is started again is another process."""
        socket = Path(self.socket)
        return socket.with_name(f"{socket.stem}.{os.getpid()}.metrics")

    def leave(self, failure: Failure) -> None:
        """Write down why this process ends, for who started it; its exit status says too little."""
        with contextlib.suppress(OSError):  # a full disk: the words on standard error must do
            self._last_words.write_bytes(msgspec.json.encode(failure))

    def take_failure(self) -> Failure | None:
        """Return why the process has ended, once; None if it left no word."""
        try:
            written = self._last_words.read_bytes()
            self._last_words.unlink()
            return msgspec.json.decode(written, type=Failure)
        except (OSError, msgspec.MsgspecError):
            return None

    @property
    def _last_words(self) -> Path:
        return Path(self.socket).with_suffix(".failure")
