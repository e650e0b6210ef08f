"""OST202 shape-churn.

What it sees: the shapes with which recorded or compiled callables were called.
How it decides: 40 calls or more, 12 signatures or more, at least 3 new ones in 10 calls, and shapes
make at least half of the difference. It proposes at most six sizes to pad to, those that cost the
fewest padded rows for the calls that were seen.
"""

from __future__ import annotations

from ostinato.doctor.activity import Callable_
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost, Remedy, Safety
from ostinato.doctor.probe import Verdict, with_spread
from ostinato.doctor.probes.signatures import (
    Churn,
    best_sizes,
    churn,
    looked_at,
    times_of_making,
    varying_dimension,
)

RULE = RULES["OST202"]
_BUCKETS = 6


def probe(evidence: Evidence) -> Verdict:
    """Find callables whose shapes hardly come twice."""
    found = churn(evidence)
    if found is None or not found.is_by_shape:
        return None
    each = found.callable
    at_least = "at least " if looked_at(each) < each.calls else ""
    fact = (
        f"{each.name} was called {each.calls} times with {at_least}{found.shapes} different shapes"
    )
    if found.use is not None:
        fact += f", and {found.use.replays} of its calls were replayed"
    remedies = RULE.remedies
    proposal = _proposal(each)
    if proposal is not None:
        remedies = (proposal, *RULE.remedies[1:])
    return RULE.finding(fact, each.place, _cost(evidence, found), remedies=remedies)


def _proposal(each: Callable_) -> Remedy | None:
    dim = varying_dimension(each)
    if dim is None:
        return None
    calls: dict[int, int] = {}
    for use in each.signatures:
        calls[use.sizes[dim]] = calls.get(use.sizes[dim], 0) + use.calls
    sizes = best_sizes(calls, _BUCKETS)
    computed = sum(count * next(s for s in sizes if s >= size) for size, count in calls.items())
    padding = 1 - sum(size * count for size, count in calls.items()) / computed
    words = f"`buckets={{NAME: Buckets({dim}, {sizes})}}`, with the name of its first argument, "
    words += "serves every shape that was seen"
    return Remedy(f"{words}, with {padding:.0%} of the rows padding", Safety.CHANGES_BEHAVIOUR)


def _cost(evidence: Evidence, found: Churn) -> Cost | None:
    """Return what recording so often costs; what replays would save is not known."""
    if found.use is None or not found.use.build_us or not found.callable.calls:
        return None
    cost = Cost(found.use.build_us / found.callable.calls, None, kind=Basis.MEASURED, per="call")
    return with_spread(cost, times_of_making(found.use), "recording")
