"""What a PromQL query asks for: names of series, and the labels it reads of each."""

from __future__ import annotations

from dataclasses import dataclass

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

from ostinato.serve.metrics import merge
from serve.watched import busy_snapshots

# Put there by whoever scrapes, not by us.
SCRAPED = {"job", "instance", "namespace", "pod"}
_GRAFANA = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}


@dataclass(frozen=True)
class Asked:
    """A series that a query reads.

    Attributes:
        matched: Label -> the value that is asked for, or None for a pattern.
    """

    name: str
    matched: tuple[tuple[str, str | None], ...]


def parsed(query: str) -> promql_parser.Expr:
    """Parse a query, Grafana's variables filled in."""
    for variable, value in _GRAFANA.items():
        query = query.replace(variable, value)
    return promql_parser.parse(query)


def series(query: str) -> set[Asked]:
    """Return what the query reads."""
    found: set[Asked] = set()

    def note(expr: object) -> None:
        if isinstance(expr, promql_parser.MatrixSelector):
            expr = expr.vector_selector
        if isinstance(expr, promql_parser.VectorSelector):
            matched = tuple(
                (each.name, each.value if each.op == promql_parser.MatchOp.Equal else None)
                for each in expr.matchers.matchers
            )
            found.add(Asked(str(expr.name), matched))

    promql_parser.walk(parsed(query), pre_visit=note)
    return found


def grouped(query: str) -> set[str]:
    """Return the labels by which the query groups."""
    labels: set[str] = set()

    def note(expr: object) -> None:
        if isinstance(expr, promql_parser.AggregateExpr) and expr.modifier is not None:
            labels.update(expr.modifier.labels)

    promql_parser.walk(parsed(query), pre_visit=note)
    return labels


def offered() -> dict[str, dict[str, set[str]]]:
    """Return what a busy service offers: series -> label -> its values."""
    offer: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(merge(busy_snapshots())):
        for sample in family.samples:
            labels = offer.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return offer


def missing(query: str, offer: dict[str, dict[str, set[str]]]) -> list[str]:
    """Return in words what the query asks for and nobody offers."""
    wrong = []
    known: set[str] = set(SCRAPED)
    for asked in series(query):
        if asked.name not in offer:
            wrong.append(f"nobody offers {asked.name}")
            continue
        labels = offer[asked.name]
        known |= labels.keys()
        for label, value in asked.matched:
            if label not in labels.keys() | SCRAPED:
                wrong.append(f"{asked.name} has no label {label}")
            elif value is not None and label in labels and value not in labels[label]:
                wrong.append(f"{asked.name} has never {label}={value!r}")
    return wrong + [f"it groups by {each}, which nothing has" for each in grouped(query) - known]
