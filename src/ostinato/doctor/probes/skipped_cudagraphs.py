"""OST303 skipped-cudagraphs.

What it sees: compiled code for which CUDA graphs were asked and left out, with torch's reason.
How it decides: any. torch decides this once for each compiled function, so every call pays.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.probe import Verdict

RULE = RULES["OST303"]


def probe(evidence: Evidence) -> Verdict:
    """Find compiled code that runs without the CUDA graphs that were asked for."""
    if evidence.compile is None or not evidence.compile.skips:
        return None
    first = evidence.compile.skips[0]
    count = sum(skip.count for skip in evidence.compile.skips)
    plural = "function" if count == 1 else "functions"
    fact = f"torch left CUDA graphs out of {count} compiled {plural}: {first.reason}"
    others = tuple(s.place for s in evidence.compile.skips[1:6] if s.place is not None)
    return RULE.finding(fact, first.place, None, others=others)
