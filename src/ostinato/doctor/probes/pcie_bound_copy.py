"""OST104 pcie-bound-copy.

What it sees: copies between host and device by line, and the copy engines' time in a profiled
window.
How it decides: copies take a fifth of the step or more, and 64 KiB a step or more. It says whether
the bytes grow with the size of the step, which is how a cache that is moved whole looks.
"""

from __future__ import annotations

from ostinato.doctor.activity import Copy
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import ONE_WINDOW, Verdict, cost_in_steps, enough_steps, with_spread
from ostinato.units import format_bytes

RULE = RULES["OST104"]
_SHARE = 0.2
_LEAST_BYTES = 64 << 10


def probe(evidence: Evidence) -> Verdict:
    """Find copies that fill the step."""
    cost, bytes_per_step = _profiled(evidence) or _by_line(evidence) or (None, 0.0)
    if cost is None or (cost.share or 0.0) < _SHARE or bytes_per_step < _LEAST_BYTES:
        return None
    dearest = max(evidence.copies, key=lambda copy: copy.bytes, default=None)
    fact = f"each step moves {format_bytes(int(bytes_per_step))} between host and device"
    if cost.us_per_step:
        fact += f", at {bytes_per_step / cost.us_per_step / 1e3:.1f} GB/s"
    if dearest is not None:
        if dearest.pinned is False:
            fact += ", from memory that is not pinned"
        fact += _growth(dearest)
    others = tuple(copy.place for copy in evidence.copies[1:4] if copy.place is not None)
    return RULE.finding(fact, dearest.place if dearest else None, cost, others=others)


def _profiled(evidence: Evidence) -> tuple[Cost, float] | None:
    profile = evidence.profile
    if profile is None or not profile.copy_us or profile.wall_us <= 0:
        return None
    steps = max(profile.steps, 1)
    share = min(1.0, profile.copy_us / profile.wall_us)
    moved = profile.copy_bytes / steps
    if not moved and evidence.steps_seen:  # the profiler does not always tell sizes
        moved = sum(copy.bytes for copy in evidence.copies) / evidence.steps_seen
    return Cost(profile.copy_us / steps, share, steps=profile.steps, no_spread=ONE_WINDOW), moved


def _by_line(evidence: Evidence) -> tuple[Cost, float] | None:
    if not enough_steps(evidence) or not evidence.copies:
        return None
    steps = evidence.steps_seen
    cost = cost_in_steps(evidence, sum(copy.us for copy in evidence.copies))
    cost = with_spread(cost, max(evidence.copies, key=lambda copy: copy.bytes).each_us, "copy")
    return None if cost is None else (cost, sum(copy.bytes for copy in evidence.copies) / steps)


def _growth(copy: Copy) -> str:
    """Return words on how the bytes of one copy grow with the size of the step."""
    sizes = [(each.size, each.bytes / each.steps) for each in copy.by_size if each.steps]
    if len(sizes) < 3 or sizes[-1][0] <= sizes[0][0]:
        return ""
    per_unit = (sizes[-1][1] - sizes[0][1]) / (sizes[-1][0] - sizes[0][0])
    if per_unit <= 0 or sizes[-1][1] < 1.5 * sizes[0][1]:
        return ""
    return f"; it grows by {format_bytes(int(per_unit))} with each row or token of the step"
