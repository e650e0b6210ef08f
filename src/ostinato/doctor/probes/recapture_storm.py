"""OST203 recapture-storm.

What it sees: recordings made again for a signature that had one, and why the first were dropped.
How it decides: 5 or more, and at least one for every ten replays, for another reason than memory
that moved (that is address-drift). What they cost is their share of the time spent on recording.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.graph_use import GraphUse
from ostinato.doctor.probe import Verdict, with_spread
from ostinato.doctor.probes.signatures import times_of_making

RULE = RULES["OST203"]
MOVED = ("weights-moved",)
_LEAST = 5
_PER_REPLAY = 0.1


def probe(evidence: Evidence) -> Verdict:
    """Find recordings that are made over and over."""
    guilty = [use for use in evidence.graphs if _storms(use)]
    if not guilty:
        return None
    use = max(guilty, key=lambda each: each.recaptures)
    why = top_reason(use)
    fact = f"{use.name} was recorded again {use.recaptures} times for {use.replays} replays"
    if use.evictions:
        fact += f"; {use.evictions} recordings were evicted for want of memory"
    elif why:
        fact += f"; the recordings before were dropped as {why}"
    return RULE.finding(fact, use.place, _cost(evidence, use))


def _storms(use: GraphUse) -> bool:
    if use.recaptures < _LEAST or use.recaptures < _PER_REPLAY * use.replays:
        return False
    return top_reason(use) not in MOVED


def top_reason(use: GraphUse) -> str:
    """Return the most frequent reason for which recordings were dropped; empty if there is none."""
    ranked = sorted(use.dropped, key=lambda each: -each.count)
    return ranked[0].word if ranked else ""


def _cost(evidence: Evidence, use: GraphUse) -> Cost | None:
    if not use.build_us or not use.captures or not use.calls:
        return None
    again_us = use.build_us * min(1.0, use.recaptures / use.captures)
    watched_us = evidence.subject.seconds * 1e6
    share = min(1.0, again_us / watched_us) if watched_us else None
    # Of all the time that recording took, the part of those made again is told by their number.
    cost = Cost(again_us / use.calls, share, kind=Basis.INFERRED, per="call")
    return with_spread(cost, times_of_making(use), "recording")
