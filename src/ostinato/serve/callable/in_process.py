"""A model on a thread of this process: for tests, and inside the model's own process."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace

from ostinato.serve.callable.arrays import Arrays, kind_of, rows_of
from ostinato.serve.callable.batcher import Batcher, Begun
from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.model import Model
from ostinato.serve.callable.service import Description, Numbers, hanging

_log = logging.getLogger(__name__)


class InProcess:
    """A model on a thread of this process: for tests, and inside the model's own process."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model = model
        self._batcher: Batcher[Arrays, Arrays] = Batcher(model.run, _filled(limits, model))
        self._is_ready = False

    @property
    def description(self) -> Description:
        """The model's metadata; its outputs are known once it is ready."""
        servable = self._model.servable
        return Description(
            servable.version,
            dict(servable.inputs),
            dict(self._model.outputs),
            tuple(sorted(servable.batch_sizes)),
            self._batcher.limits.max_batch,
            self._batcher.limits.max_waiting,
        )

    @property
    def is_ready(self) -> bool:
        """Whether it is warm and takes requests."""
        return self._is_ready

    @property
    def is_broken(self) -> bool:
        """Never: a thread that loses its device ends its process."""
        return False

    def trouble(self, progress_s: float) -> str | None:
        """Return why it does no work; see `CallableService`."""
        return hanging(self._batcher.stuck_s, progress_s)

    async def warm(self) -> None:
        """Record, off the event loop."""
        await asyncio.to_thread(self._model.warm)
        self._is_ready = True

    async def infer(
        self,
        inputs: Arrays,
        *,
        priority: int = 0,
        timeout_s: float | None = None,
        alone: bool = False,
        key: int = 0,
        begun: Begun | None = None,
    ) -> Arrays:
        """Answer one request; see `CallableService`, and `Batcher.infer` for the rest."""
        rows = rows_of(inputs, self._model.servable.inputs)
        return await self._batcher.infer(
            inputs,
            kind=kind_of(inputs),
            rows=rows,
            priority=priority,
            timeout_s=timeout_s,
            alone=alone,
            key=key,
            begun=begun,
        )

    async def numbers(self) -> Numbers:
        """Return what happened so far."""
        return self.count()

    def count(self) -> Numbers:
        """Do as `numbers`, from any thread."""
        counts, report = self._batcher.counts, self._model.runner.report()
        return Numbers(
            counts.waiting,
            counts.running,
            counts.batches,
            counts.rows,
            counts.answered,
            counts.failed,
            counts.late,
            counts.refused,
            report.replays,
            report.padded_rows,
            dict(report.reasons),
            self._batcher.stuck_s,
            self._batcher.busy_s,
            os.getpid(),
        )

    async def drain(self, bound_s: float) -> bool:
        """Take no more, and wait; see `CallableService`."""
        self._is_ready = False
        return await self._batcher.drain(bound_s)

    async def close(self) -> None:
        """End now."""
        self._is_ready = False
        await self._batcher.close()


def _filled(limits: Limits, model: Model) -> Limits:
    """Return limits by which no company makes a batch larger than what is recorded."""
    largest = model.largest_recorded
    if largest is None or largest >= limits.max_batch:
        return limits
    _log.warning(
        "requests share runs of at most %d rows, the largest of batch_sizes; one that has more, up "
        "to --max-batch %d, runs alone and without a recording: add sizes, or lower --max-batch",
        largest,
        limits.max_batch,
    )
    return replace(limits, fill_to=largest)
