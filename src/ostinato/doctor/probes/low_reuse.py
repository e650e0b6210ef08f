"""OST206 low-reuse.

What it sees: calls of `graphed`, how many were replayed, and the reasons of the rest.
How it decides: 100 calls or more, fewer than half replayed, and not because signatures hardly come
twice (that is shape-churn or over-keyed-cache) or because recording does not pay.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost, Remedy, Safety
from ostinato.doctor.graph_use import GraphUse, WordCount
from ostinato.doctor.probe import Verdict, percent, with_spread
from ostinato.doctor.probes.signatures import churn

RULE = RULES["OST206"]
_CALLS = 100
_REUSE = 0.5
_OTHERS = ("unprofitable", "weights-moved", "over-budget", "eager-backend", "closed")


def probe(evidence: Evidence) -> Verdict:
    """Find callables that were wrapped for replays and run eagerly."""
    if churn(evidence) is not None:
        return None
    guilty = [use for use in evidence.graphs if _is_low(use)]
    if not guilty:
        return None
    use = max(guilty, key=lambda each: each.calls - each.replays)
    reasons = sorted(use.eager, key=lambda each: -each.count)
    fact = (
        f"{use.name} was replayed in {use.replays} of {use.calls} calls "
        f"({percent(use.replays / use.calls)})"
    )
    if reasons:
        fact += f"; the rest: {', '.join(_said(each) for each in reasons[:3])}"
    remedies = RULE.remedies
    if reasons:
        words = f"do what `ostinato explain {reasons[0].word}` says"
        remedies = (Remedy(words, Safety.CHANGES_BEHAVIOUR), *RULE.remedies[1:])
    return RULE.finding(fact, use.place, _cost(use), remedies=remedies)


def _is_low(use: GraphUse) -> bool:
    if use.kind != "graphed" or use.calls < _CALLS or use.replays >= _REUSE * use.calls:
        return False
    reasons = sorted(use.eager, key=lambda each: -each.count)
    return not reasons or reasons[0].word not in _OTHERS


def _said(reason: WordCount) -> str:
    words = f"{reason.count} {reason.word}"
    return f"{words} ({reason.detail})" if reason.detail else words


def _cost(use: GraphUse) -> Cost | None:
    """Return what each eager call would have saved, where a recording of it was timed."""
    saved = [r.eager_us - r.replay_us for r in use.recordings if r.eager_us and r.replay_us]
    if not saved or not use.calls:
        return None
    lost = sum(saved) / len(saved) * (use.calls - use.replays)
    # Measured where it was recorded; that the eager calls are like those is taken for granted.
    cost = Cost(max(0.0, lost / use.calls), None, kind=Basis.INFERRED, per="call")
    return with_spread(cost, saved, "recording")
