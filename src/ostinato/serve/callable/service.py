"""What a server asks of a callable, whichever process it runs in. No torch."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ostinato.serve.callable.arrays import Arrays, TensorSpec


class Description(msgspec.Struct, frozen=True):
    """A model's metadata.

    Attributes:
        batch_sizes: Recorded sizes.
        max_batch: The most rows of one request.
        max_waiting: The most requests that wait.
    """

    version: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    batch_sizes: tuple[int, ...]
    max_batch: int
    max_waiting: int


class Numbers(msgspec.Struct, frozen=True):
    """What a model has done so far, and what it does.

    Attributes:
        padded_rows: Rows of padding that were computed.
        eager: Calls that ran eagerly, by the word of their reason.
        stuck_s: How long the batch that runs now has kept others from their answers; 0: nobody.
        busy_s: How long batches have run, all together.
        pid: Of the process that the model runs in.
    """

    waiting: int
    running: int
    batches: int
    rows: int
    answered: int
    failed: int
    late: int
    refused: int
    replays: int
    padded_rows: int
    eager: dict[str, int]
    stuck_s: float
    busy_s: float
    pid: int


class CallableService(Protocol):
    """A model that answers requests of rows."""

    @property
    def description(self) -> Description:
        """The model's metadata; known once it is ready."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it is warm and takes requests."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether it will never be ready again."""
        ...

    def trouble(self, progress_s: float) -> str | None:
        """Return why it does no work, or None: it is gone, or hangs.

        Args:
            progress_s: How long a batch may run that keeps others from their answers, and how
                long nothing may be heard while anybody is kept waiting.
        """
        ...

    async def infer(
        self, inputs: Arrays, *, priority: int = 0, timeout_s: float | None = None
    ) -> Arrays:
        """Answer one request of one or more rows.

        Raises:
            OstinatoError: `faults.fault_of` says whose fault it is.
        """
        ...

    async def numbers(self) -> Numbers:
        """Return what happened so far."""
        ...

    async def drain(self, bound_s: float) -> bool:
        """Take no more; say whether all that was there was answered within `bound_s`."""
        ...

    async def close(self) -> None:
        """End now."""
        ...


def hanging(stuck_s: float, progress_s: float) -> str | None:
    """Return why a model hangs whose batch has kept others for so long; None if it does not.

    The probes and the process that ends itself ask this alike, so that none is called unfit that
    is not to be ended: nobody would be sent there, and then nobody would wait behind its batch.
    """
    if stuck_s <= progress_s:
        return None
    return f"the model has been running one batch for {stuck_s:.0f} s and keeps others waiting"
