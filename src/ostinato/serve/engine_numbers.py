"""What the engine's process tells of itself to whoever asks for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.serve.metrics import Metrics

if TYPE_CHECKING:
    from ostinato.llm import Engine


def watched(engine: Engine, process: str) -> Metrics:
    """Return metrics that read `engine` and hear of every recording of this process."""
    metrics = Metrics(process)
    metrics.watch_engine(engine)
    metrics.watch_graphs()
    return metrics
