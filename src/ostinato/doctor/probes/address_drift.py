"""OST204 address-drift.

What it sees: inputs of hand-made graphs that were freed, recordings dropped because weights had
moved, and parameters of recorded modules that lie elsewhere than before.
How it decides: one replay by hand over freed memory is a wrong result, and enough. For `graphed`,
which notices and records anew, three drops or moves make a habit.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.graph_use import GraphUse
from ostinato.doctor.probe import Verdict, with_spread
from ostinato.doctor.probes.recapture_storm import MOVED
from ostinato.doctor.probes.signatures import times_of_making

RULE = RULES["OST204"]
_HABIT = 3


def probe(evidence: Evidence) -> Verdict:
    """Find graphs whose memory the program has moved on from."""
    for use in evidence.graphs:
        if use.kind == "cuda-graph" and use.moved_inputs:
            fact = (
                f"a graph captured by hand was replayed over memory that had been freed "
                f"({use.moved_inputs} times when it was looked at): its results are stale or wrong"
            )
            return RULE.finding(fact, use.place)
    for use in evidence.graphs:
        moved = sum(each.count for each in use.dropped if each.word in MOVED)
        if moved >= _HABIT:
            fact = f"{use.name} lost {moved} recordings because weights had moved in memory"
            return RULE.finding(fact, use.place, _cost(use, moved))
    return None


def _cost(use: GraphUse, moved: int) -> Cost | None:
    if not use.build_us or not use.captures or not use.calls:
        return None
    again_us = use.build_us * min(1.0, moved / use.captures)  # by their number, not timed apart
    cost = Cost(again_us / use.calls, None, kind=Basis.INFERRED, per="call")
    return with_spread(cost, times_of_making(use), "recording")
