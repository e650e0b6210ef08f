"""What happened in a runner: counts, reasons, bytes, and one line for every recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostinato.units import format_bytes, format_us

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHADES = " ░▒▓█"


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One recording.

    Attributes:
        hits: Calls it has answered.
        bytes: Memory it keeps.
        build_seconds: Wall time of making it.
        nodes: Kernels, or aten calls on the tape, in one replay.
        signature: The situation it serves, in one line.
        eager_us, replay_us: Time of one run each way when it was made.
    """

    graph_id: str
    hits: int
    bytes: int
    build_seconds: float
    nodes: int
    eager_us: float
    replay_us: float
    signature: str


@dataclass(frozen=True, slots=True)
class Report:
    """What happened in a runner so far.

    Attributes:
        calls: Calls answered, in any way.
        replays: Of them, by a replay.
        compared: Of them, those that ran eagerly as well, so that both answers could be compared.
        reuse_rate: replays / calls; 0 without calls.
        reuse_rate_by_nodes: The same with every call weighted by the nodes of its signature's
            graph; a signature never recorded counts as the average one.
        recordings: Recordings made.
        recaptures: Of them, for a signature whose recording had been lost.
        evictions: Recordings given up to stay within the budget.
        bytes: Memory that all present recordings keep.
        padded_rows, real_rows: Rows replayed that were padding, and that were not.
        reasons: Count of calls that ran eagerly, and of recordings dropped, by reason.
        details: The latest sentence for each reason that has one.
        graphs: The present recordings.
    """

    name: str
    backend: str
    calls: int
    replays: int
    compared: int
    reuse_rate: float
    reuse_rate_by_nodes: float
    recordings: int
    recaptures: int
    evictions: int
    bytes: int
    budget_bytes: int
    padded_rows: int
    real_rows: int
    reasons: dict[str, int]
    details: dict[str, str]
    graphs: tuple[GraphReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["graphs"] = [
            {name: getattr(graph, name) for name in graph.__slots__} for graph in self.graphs
        ]
        return values

    def heat_map(self, width: int = 24) -> str:
        """Draw one line for each recording, longest where most calls were answered."""
        if not self.graphs:
            return "no recordings"
        most = max(graph.hits for graph in self.graphs) or 1
        lines = []
        for graph in sorted(self.graphs, key=lambda g: -g.hits):
            full, rest = divmod(graph.hits * width * 4, most * 4)
            bar = "█" * full + (_SHADES[rest * 4 // (most * 4)] if full < width else "")
            lines.append(f"{bar:<{width}} {graph.hits:>7}  {graph.graph_id}  {graph.signature}")
        return "\n".join(lines)

    def __rich__(self) -> RenderableType:
        return table(self)

    def __str__(self) -> str:
        from rich.console import Console  # only for people who print it

        console = Console(width=100, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(table(self))
        return captured.get()


def table(report: Report) -> RenderableType:
    """Return the report as rich tables: totals, reasons, recordings."""
    from rich.console import Group
    from rich.table import Table

    totals = Table(
        title=f"{report.name} on {report.backend}", show_header=False, title_justify="left"
    )
    totals.add_row("calls", f"{report.calls}, {report.replays} replayed ({report.reuse_rate:.1%})")
    if report.compared:
        totals.add_row("compared", f"{report.compared} of the replayed ran eagerly, too")
    totals.add_row("by work", f"{report.reuse_rate_by_nodes:.1%} of all nodes were replayed")
    totals.add_row(
        "recordings",
        f"{report.recordings}, {report.recaptures} of them again; {report.evictions} evicted",
    )
    totals.add_row("memory", f"{format_bytes(report.bytes)} of {format_bytes(report.budget_bytes)}")
    if report.padded_rows:
        share = report.padded_rows / (report.padded_rows + report.real_rows)
        totals.add_row("padding", f"{share:.1%} of the replayed rows")
    parts: list[RenderableType] = [totals]
    if report.reasons:
        parts.append(_reasons_table(report))
    if report.graphs:
        parts.append(_graphs_table(report))
    return Group(*parts)


def _reasons_table(report: Report) -> RenderableType:
    from rich.table import Table

    reasons = Table("reason", "count", "what was seen (ostinato explain REASON)")
    for word, count in sorted(report.reasons.items(), key=lambda item: -item[1]):
        reasons.add_row(word, str(count), report.details.get(word, ""))
    return reasons


def _graphs_table(report: Report) -> RenderableType:
    from rich.table import Table

    graphs = Table(
        "recording", "hits", "nodes", "memory", "made in", "eager", "replay", "signature"
    )
    for graph in sorted(report.graphs, key=lambda g: -g.hits):
        graphs.add_row(
            graph.graph_id,
            str(graph.hits),
            str(graph.nodes),
            format_bytes(graph.bytes),
            format_us(graph.build_seconds * 1e6),
            format_us(graph.eager_us),
            format_us(graph.replay_us),
            graph.signature,
        )
    return graphs
