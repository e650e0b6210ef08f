"""OST105 lost-gradient.

What it sees: numbers that were read from a tensor with a history, and where they came back.
How it decides: the very number was seen in a sum or product whose result has a history, or a number
stood beside a tensor on the line of the read. Once is enough: it is a wrong result, not a slow one.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.probe import Verdict, times

RULE = RULES["OST105"]


def probe(evidence: Evidence) -> Verdict:
    """Find values that lost their history on the way into a loss."""
    if not evidence.lost_gradients:
        return None
    ranked = sorted(evidence.lost_gradients, key=lambda lost: (not lost.certain, -lost.count))
    first = ranked[0]
    word = "a number" if first.certain else "most likely a number"
    fact = f"{first.op} reads {word} that goes on into a loss, {times(first.count)}"
    if first.used is not None and first.place is not None and first.used.line != first.place.line:
        fact += f"; it comes back at {first.used}"
    others = tuple(lost.place for lost in ranked[1:6] if lost.place is not None)
    return RULE.finding(fact, first.place, None, others=others)
