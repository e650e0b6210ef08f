"""OST503 blocking-call-in-event-loop.

What it sees: callbacks of asyncio that took 20 ms or more, with the line that they were at.
How it decides: three at one line, or one of half a second. asyncio itself warns at 100 ms when it
debugs; a token every 20 ms is what people serve.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import Verdict, times, with_spread
from ostinato.units import format_us

RULE = RULES["OST503"]
_HABIT = 3
_VERY_LONG_US = 500e3


def probe(evidence: Evidence) -> Verdict:
    """Find callbacks that keep an event loop from everything else."""
    guilty = [
        block
        for block in evidence.loop_blocks
        if block.count >= _HABIT or block.longest_us >= _VERY_LONG_US
    ]
    if not guilty:
        return None
    first = max(guilty, key=lambda block: block.us)
    fact = (
        f"the event loop stood still {times(first.count)}, for up to {format_us(first.longest_us)}"
    )
    watched_us = evidence.subject.seconds * 1e6
    share = min(1.0, first.us / watched_us) if watched_us else None
    each = Cost(first.us / first.count, share, per="callback")
    cost = with_spread(each, first.each_us, "callback")
    others = tuple(
        block.place for block in guilty if block is not first and block.place is not None
    )
    return RULE.finding(fact, first.place, cost, others=others[:5])
