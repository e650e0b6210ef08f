"""Draw up the report of a runner from its account and its recordings."""

from __future__ import annotations

from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.report import GraphReport, Report
from ostinato.graphs.store import Store


def report_on(chronicle: Chronicle, store: Store, backend: str) -> Report:
    """Return what happened in a runner so far."""
    entries = store.entries()
    graphs = store.graphs()
    replays = chronicle.lost_replays + sum(graph.hits for graph in graphs)
    calls = replays + chronicle.eager + chronicle.recorded
    return Report(
        name=chronicle.name,
        backend=backend,
        calls=calls,
        replays=replays,
        compared=chronicle.compared,
        reuse_rate=replays / calls if calls else 0.0,
        reuse_rate_by_nodes=_by_nodes(
            replays,
            chronicle.lost_work + sum(graph.hits * graph.recording.nodes for graph in graphs),
            calls - replays,
            [(entry.calls, entry.nodes) for entry in entries if entry.nodes is not None],
        ),
        recordings=chronicle.recordings,
        recaptures=chronicle.recaptures,
        evictions=chronicle.evictions,
        bytes=sum(graph.bytes for graph in graphs),
        budget_bytes=store.budget_bytes,
        padded_rows=chronicle.padded_rows,
        real_rows=chronicle.real_rows,
        reasons={str(reason): count for reason, count in chronicle.reasons.items()},
        details={str(reason): text for reason, text in chronicle.details.items()},
        graphs=tuple(
            GraphReport(
                graph_id=graph.graph_id,
                hits=graph.hits,
                bytes=graph.bytes,
                build_seconds=graph.build_seconds,
                nodes=graph.recording.nodes,
                eager_us=graph.eager_us,
                replay_us=graph.replay_us,
                signature=str(graph.signature),
            )
            for graph in graphs
        ),
    )


def _by_nodes(
    replays: int, replayed_work: int, other_calls: int, known: list[tuple[int, int]]
) -> float:
    """Weigh calls by the nodes of their graph.

    Args:
        replays: Calls that were replayed.
        replayed_work: Nodes that ran in them.
        other_calls: Calls that were not.
        known: Per signature that was ever recorded: calls not replayed, and nodes.
    """
    if replays:
        average = replayed_work / replays
    else:
        average = sum(nodes for _, nodes in known) / len(known) if known else 1.0
    unknown = other_calls - sum(calls for calls, _ in known)
    other_work = sum(calls * nodes for calls, nodes in known) + max(unknown, 0) * average
    work = replayed_work + other_work
    return replayed_work / work if work else 0.0
