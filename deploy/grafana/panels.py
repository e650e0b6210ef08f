"""What a dashboard is made of: rows, panels and queries, as plain data.

`service.py` and `recordings.py` fill them, `build.py` draws them. Every query names metrics of
docs/guides/metrics.md, and a test holds each against what a service offers. Shares are computed
from sums: never an average of percentages.
"""

from __future__ import annotations

from dataclasses import dataclass

OURS = 'job=~"$job", instance=~"$instance"'
RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One line of a panel; `legend` is Grafana's pattern."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        says: What to read in it, and what to do.
        draw: "lines", "stacked", "number" or "heat".
        unit: Grafana's word for the unit.
        width: Of 24 columns.
    """

    title: str
    says: str
    queries: tuple[Query, ...]
    unit: str = "short"
    draw: str = "lines"
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file."""

    uid: str
    title: str
    says: str
    rows: tuple[Row, ...]


def rate(name: str, labels: str = "", by: str = "") -> str:
    """Return the sum over all replicas of how fast a counter rises."""
    selector = f"{OURS}, {labels}" if labels else OURS
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({name}{{{selector}}}[{RATE}]))"


def now(name: str, labels: str = "", by: str = "", join: str = "sum") -> str:
    """Return a gauge over all replicas."""
    selector = f"{OURS}, {labels}" if labels else OURS
    grouped = f" by ({by})" if by else ""
    return f"{join}{grouped} ({name}{{{selector}}})"


def share(part: str, whole: str) -> str:
    """Return part of whole; nothing where there is nothing to be a part of."""
    return f"({part}) / ({whole} > 0)"


def quantiles(name: str, by: str = "") -> tuple[Query, ...]:
    """Return the median, the 95th and the 99th percentile of a histogram, for each `by`."""
    grouped = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(
            f"histogram_quantile({q}, {rate(f'{name}_bucket', by=grouped)})",
            f"p{round(q * 100)}{legend}",
        )
        for q in (0.5, 0.95, 0.99)
    )
