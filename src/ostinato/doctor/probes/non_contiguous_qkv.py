"""OST402 non-contiguous-qkv.

What it sees: copies made by `contiguous` or `reshape` whose result went into attention; where both
ways were tried, one call with the copy and one without.
How it decides: tried both ways, the copy must cost a tenth of the call or more; otherwise the
verdict is to leave it. Not tried, the copies must take 2 % of the step.
"""

from __future__ import annotations

from ostinato.doctor.activity import LayoutCopy
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis
from ostinato.doctor.probe import Verdict, abstain, cost_in_steps, enough_steps, with_spread
from ostinato.units import format_bytes, format_us

RULE = RULES["OST402"]
_WORTH = 1.1
_SHARE = 0.02


def probe(evidence: Evidence) -> Verdict:
    """Find copies that only change the layout of what attention reads."""
    copies = [copy for copy in evidence.layout_copies if copy.feeds == "attention"]
    if not copies or not enough_steps(evidence):
        return None
    tried = [c for c in copies if c.with_copy_us is not None and c.without_copy_us is not None]
    wasted = [copy for copy in tried if _saved_us(copy) > 0]
    if wasted:
        return _finding(evidence, wasted, sum(_saved_us(c) * c.count for c in wasted))
    if tried:
        return _leave_it(tried)
    total = sum(copy.us for copy in copies)
    if total < _SHARE * (evidence.step_us() or 0.0) * evidence.steps_seen:
        return None
    return _finding(evidence, copies, total)


def _saved_us(copy: LayoutCopy) -> float:
    with_copy, without = copy.with_copy_us, copy.without_copy_us
    if with_copy is None or without is None or with_copy < _WORTH * without:
        return 0.0
    return with_copy - without


def _finding(evidence: Evidence, copies: list[LayoutCopy], us: float) -> Verdict:
    first = max(copies, key=lambda copy: copy.us)
    per_step = sum(copy.count for copy in copies) / evidence.steps_seen
    size = sum(copy.bytes for copy in copies) / evidence.steps_seen
    fact = (
        f"each step copies {format_bytes(int(size))} in {_count(per_step)} "
        "only to change its layout before attention"
    )
    if first.with_copy_us is not None and first.without_copy_us is not None:
        fact += (
            f"; attention takes {format_us(first.with_copy_us)} with the copy and "
            f"{format_us(first.without_copy_us)} without"
        )
    measured = first.with_copy_us is not None or evidence.subject.device == "cpu"
    basis = Basis.MEASURED if measured else Basis.INFERRED
    others = tuple(copy.place for copy in copies if copy is not first and copy.place is not None)
    cost = cost_in_steps(evidence, us, basis=basis)
    if first.with_copy_us is None:
        cost = with_spread(cost, first.each_us, "copy")
    return RULE.finding(fact, first.place, cost, others=others[:5])


def _count(copies: float) -> str:
    return "one copy" if copies < 1.5 else f"{copies:.0f} copies"


def _leave_it(tried: list[LayoutCopy]) -> Verdict:
    first = max(tried, key=lambda copy: copy.us)
    took, loose = format_us(first.with_copy_us or 0.0), format_us(first.without_copy_us or 0.0)
    return abstain(
        RULE,
        f"q, k or v is copied at {first.place}: attention takes {took} so, {loose} without",
        "leave it: the copy pays for itself",
    )
