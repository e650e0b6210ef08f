"""How many engines there should be: enough rows for what runs, and more when work waits. Pure.

Ray asks `by_queue` a few times a second and applies its own delays and bounds to the answer. What
counts is what waits, in engines and before them: an engine whose rows are all busy and whose queue
is empty does what it is there for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WAITING, RUNNING, ROWS = "waiting", "running", "rows"
"""What each engine tells of itself."""


@dataclass(frozen=True, slots=True)
class Demand:
    """All engines together.

    Attributes:
        waiting: Requests that wait for a row, in engines and before them.
        rows: That all engines have.
    """

    engines: int
    waiting: float
    running: float
    rows: float


def wanted(demand: Demand, *, most_waiting: float = 8.0, fill: float = 0.7) -> int:
    """Return how many engines there should be.

    Args:
        most_waiting: For each engine: with fewer, work waits no longer than it must.
        fill: When fewer engines are asked to do the work, their rows may be as full as this.
    """
    if not demand.engines:
        return 1 if demand.waiting else 0
    if not demand.rows:
        return demand.engines
    rows_each = demand.rows / demand.engines
    if demand.waiting > most_waiting * demand.engines:
        needed = math.ceil((demand.running + demand.waiting) / rows_each)
        return max(demand.engines + 1, needed)
    if demand.waiting:
        return demand.engines
    return min(demand.engines, max(1, math.ceil(demand.running / (rows_each * fill))))


def demand_of(engines: int, queued: float, told: Mapping[str, Mapping[Any, float]]) -> Demand:
    """Return the demand from what engines told, by name and engine, and the queue before them."""
    sums = {name: sum(told.get(name, {}).values()) for name in (WAITING, RUNNING, ROWS)}
    return Demand(engines, queued + sums[WAITING], sums[RUNNING], sums[ROWS])


def by_queue(context: Any) -> tuple[int, dict[str, Any]]:
    """Answer Ray's autoscaler."""
    queued = context.total_queued_requests or 0.0
    demand = demand_of(context.current_num_replicas, queued, context.aggregated_metrics or {})
    return max(1, wanted(demand)), {}
