"""OST301 graph-breaks.

What it sees: torch's account of where a compiled function fell back to Python, and why.
How it decides: any break counts that the steps can meet. They are ranked by what they cost: what
was measured, else 40 us for each piece more (its guards, its call and its launch; measured with the
eager backend on a Xeon, 2026-11-30).
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.graph_use import GraphBreak
from ostinato.doctor.probe import Verdict, cost_in_steps

RULE = RULES["OST301"]
_PIECE_US = 40.0


def probe(evidence: Evidence) -> Verdict:
    """Find lines at which compiled code falls back to Python."""
    if evidence.compile is None or not evidence.compile.breaks:
        return None
    ranked = sorted(evidence.compile.breaks, key=_us, reverse=True)
    first = ranked[0]
    count = len(ranked)
    fact = f"compiled code falls back to Python at {count} place{'s' * (count > 1)}: {first.reason}"
    is_measured = all(each.us_per_step is not None for each in ranked)
    us = sum(_us(each) for each in ranked)
    basis = Basis.MEASURED if is_measured else Basis.INFERRED
    cost = cost_in_steps(evidence, us * evidence.steps_seen, basis=basis)
    cost = cost or Cost(us, None, kind=basis, per="call")
    others = tuple(each.place for each in ranked[1:6] if each.place is not None)
    return RULE.finding(fact, first.place, cost, others=others)


def _us(found: GraphBreak) -> float:
    return _PIECE_US if found.us_per_step is None else found.us_per_step
