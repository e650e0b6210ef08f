"""What the process of a callable tells of its model: its queue, its batches and its calls.

The batcher keeps its own counts, which are read when somebody asks. How each call was answered is
heard of from `instruments`, as in a program without a service. The label `model` tells a callable
from the encoder that is served beside a model that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ostinato.instruments import Instrument
from ostinato.serve.metrics.engine import Values, family

if TYPE_CHECKING:
    from prometheus_client import Counter

    from ostinato.instruments import Captured, RanEagerly, Replayed
    from ostinato.serve.callable.service import Numbers
    from ostinato.serve.metrics.process import Metrics


class ModelNumbers(Collector):
    """The queue and the batches of one model.

    Args:
        model: As clients call it.
        count: Says what happened so far, from any thread.
    """

    def __init__(self, model: str, count: Callable[[], Numbers]) -> None:
        self._model, self._count = model, count

    def collect(self) -> Iterable[Metric]:
        """Yield them as they are now; never waits for a batch."""
        for name, values in _told(self._count()).items():
            labelled = {(self._model, *labels): value for labels, value in values.items()}
            yield family(name, labelled)


def _told(now: Numbers) -> dict[str, Values]:
    return {
        "ostinato_model_waiting_requests": {(): float(now.waiting)},
        "ostinato_model_running_requests": {(): float(now.running)},
        "ostinato_model_batches_total": {(): float(now.batches)},
        "ostinato_model_rows_total": {(): float(now.rows)},
        "ostinato_model_padded_rows_total": {(): float(now.padded_rows)},
        "ostinato_model_busy_seconds_total": {(): now.busy_s},
        "ostinato_model_answers_total": {
            ("answered",): float(now.answered),
            ("failed",): float(now.failed),
            ("late",): float(now.late),
            ("refused",): float(now.refused),
        },
    }


class ModelCalls(Instrument):
    """How the calls of one model were answered, and how full its recordings were.

    Args:
        rows: Says how many rows the call has that is answered now, on the thread that calls; 0
            while the model is warmed.
    """

    def __init__(
        self, model: str, calls: Counter, metrics: Metrics, rows: Callable[[], int]
    ) -> None:
        self._model, self._calls, self._metrics, self._rows = model, calls, metrics, rows

    def captured(self, event: Captured) -> None:
        """Count a call that was answered by making a recording."""
        if event.answered_call:
            self._calls.labels(self._model, "recorded", "").inc()

    def replayed(self, event: Replayed) -> None:
        """Count a replayed call, and its recording's rows."""
        self._calls.labels(self._model, "replayed", "").inc()
        rows = self._rows()
        if rows:
            self._metrics.batch_ran(rows + event.padded_rows, rows)

    def ran_eagerly(self, event: RanEagerly) -> None:
        """Count an eager call under its reason."""
        self._calls.labels(self._model, "eager", event.reason).inc()
