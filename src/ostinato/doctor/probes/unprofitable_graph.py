"""OST207 unprofitable-graph.

What it sees: the time of an eager run and of a replay, taken when each recording was made, and
calls that ran eagerly because recording did not pay.
How it decides: 50 calls or more; and either half of them ran eagerly as `unprofitable`, or every
recording that served a call saves less than a tenth.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.graph_use import GraphUse
from ostinato.doctor.probe import Verdict
from ostinato.units import format_bytes, format_us

RULE = RULES["OST207"]
_CALLS = 50
_SAVES = 0.1


def probe(evidence: Evidence) -> Verdict:
    """Find callables for which a recording buys nothing."""
    for use in evidence.graphs:
        if use.calls < _CALLS or use.kind != "graphed":
            continue
        eagerly = sum(each.count for each in use.eager if each.word == "unprofitable")
        if eagerly >= use.calls / 2:
            fact = (
                f"{eagerly} of {use.calls} calls of {use.name} ran eagerly: a replay is no faster"
            )
            return RULE.finding(fact, use.place)
        found = _slow_replays(use)
        if found is not None:
            return found
    return None


def _slow_replays(use: GraphUse) -> Verdict:
    timed = [r for r in use.recordings if r.hits and r.eager_us and r.replay_us]
    if not timed or any(r.replay_us < (1 - _SAVES) * r.eager_us for r in timed):
        return None
    most = max(timed, key=lambda recording: recording.hits)
    fact = (
        f"replaying {use.name} takes {format_us(most.replay_us)} and running it eagerly "
        f"{format_us(most.eager_us)}; its recordings keep {format_bytes(use.bytes)}"
    )
    lost = most.replay_us - most.eager_us
    cost = Cost(lost, lost / most.replay_us, per="call") if lost > 0 else None
    return RULE.finding(fact, use.place, cost)
