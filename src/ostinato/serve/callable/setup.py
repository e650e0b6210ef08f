"""What the process of a callable is started with, and what its exit status says. No torch."""

from __future__ import annotations

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
    """

    factory: str
    socket: str
    limits: Limits
    arguments: tuple[str, ...] = ()
