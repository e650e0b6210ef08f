"""OST205 amp-switch-in-capture.

What it sees: autocast that was entered with its cache on while a recording was being made.
How it decides: once is enough. A block that switches it off, or that keeps no cache, is harmless
and is not reported; nor is a switch outside of recordings.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.probe import Verdict, times

RULE = RULES["OST205"]


def probe(evidence: Evidence) -> Verdict:
    """Find autocast that is switched inside of a recording."""
    guilty = [s for s in evidence.amp_switches if s.capturing and s.states != ("off",)]
    if not guilty:
        return None
    first = max(guilty, key=lambda switch: switch.capturing)
    states = ", ".join(state for state in first.states if state != "off") or "its default type"
    fact = (
        f"autocast to {states} was entered {times(first.capturing)} inside of a recording, "
        "with its cache of cast weights on"
    )
    others = tuple(s.place for s in guilty if s is not first and s.place is not None)
    return RULE.finding(fact, first.place, None, others=others)
