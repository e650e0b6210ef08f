"""OST208 over-keyed-cache.

What it sees: the signatures of recorded or compiled callables, shapes and plain values apart.
How it decides: 40 calls or more, 12 signatures or more, at least 3 new ones in 10 calls, and fewer
than half of them differ in a shape: the rest is a plain value that changes.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import Verdict, with_spread
from ostinato.doctor.probes.signatures import Churn, churn, times_of_making

RULE = RULES["OST208"]


def probe(evidence: Evidence) -> Verdict:
    """Find callables whose key holds a value that changes with every call."""
    found = churn(evidence)
    if found is None or found.is_by_shape:
        return None
    each = found.callable
    fact = (
        f"{each.name} was called {each.calls} times with {found.shapes} "
        f"shape{'s' * (found.shapes > 1)} and yet {found.signatures} signatures: "
        f"{_what_varies(found)}"
    )
    cost = None
    if found.use is not None and found.use.build_us:
        whole = Cost(found.use.build_us / each.calls, None, per="call")
        cost = with_spread(whole, times_of_making(found.use), "recording")
    return RULE.finding(fact, each.place, cost)


def _what_varies(found: Churn) -> str:
    if found.argument is None:
        return "a plain value changes"
    values = []
    for use in found.callable.signatures:
        parts = use.text.split("; ")
        if found.argument < len(parts) and parts[found.argument] not in values:
            values.append(parts[found.argument])
    shown = ", ".join(values[:3])
    return f"argument {found.argument + 1} is {shown}, …"
