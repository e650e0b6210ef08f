"""What the process of a callable is started with, and what its exit status says. No torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from ostinato.serve.callable.batching import Limits

EXIT_UNFIT: Final = 2
EXIT_DEVICE_LOST: Final = 70


class Setup(msgspec.Struct, frozen=True):
    """What the process is started with.

    Attributes:
        factory: As `declaration.make` takes it.
        arguments: For the factory.
        socket: Path to listen on.
        name: As clients call the model; metrics are told under it, none without.
    """

    factory: str
    socket: str
    limits: Limits
    arguments: tuple[str, ...] = ()
    name: str = ""

    @property
    def metrics_socket(self) -> Path:
        """Where this process gives its metrics; one that is started again is another process."""
        socket = Path(self.socket)
        return socket.with_name(f"{socket.stem}.{os.getpid()}.metrics")
