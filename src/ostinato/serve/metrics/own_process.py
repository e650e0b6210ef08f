"""The standard process_* metrics, with a label for which of our processes each is of.

prometheus_client's multi-process mode gives these up. Here the label keeps them apart, so nothing
has to be added up, and one sees which front end is short of file handles.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class OwnProcess(Collector):
    """CPU seconds, memory, file handles and start of this process.

    Args:
        process: Its name among ours.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._collector = ProcessCollector(registry=None)

    def collect(self) -> Iterable[Metric]:
        """Yield what the system says of this process now."""
        for family in self._collector.collect():
            labelled = Metric(family.name, family.documentation, family.type, family.unit)
            for sample in family.samples:
                labelled.add_sample(
                    sample.name, {**sample.labels, "process": self._process}, sample.value
                )
            yield labelled
