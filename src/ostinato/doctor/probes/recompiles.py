"""OST302 recompiles.

What it sees: functions that torch compiled again, with its reasons.
How it decides: three times or more for one function. The first new shape is compiled once as a
dynamic one, so one is normal, and a second can come from another guard. The cost is the time of
compiling.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import Verdict
from ostinato.units import format_us

RULE = RULES["OST302"]
_HABIT = 3


def probe(evidence: Evidence) -> Verdict:
    """Find functions that are compiled over and over."""
    if evidence.compile is None:
        return None
    guilty = [each for each in evidence.compile.recompiles if each.count >= _HABIT]
    if not guilty:
        return None
    first = max(guilty, key=lambda each: each.us)
    fact = (
        f"{first.function} was compiled again {first.count} times, in {format_us(first.us)}: "
        f"{first.reasons[0] if first.reasons else 'torch gives no reason'}"
    )
    total_us = sum(each.us for each in guilty)
    watched_us = evidence.subject.seconds * 1e6
    share = min(1.0, total_us / watched_us) if watched_us else None
    count = sum(each.count for each in guilty)
    added_up = "torch adds the compilations of a function up"
    cost = Cost(total_us / count, share, per="compilation", no_spread=added_up)
    others = tuple(each.place for each in guilty if each is not first and each.place is not None)
    return RULE.finding(fact, first.place, cost, others=others)
