"""OST502 lock-across-wait.

What it sees: locks of `threading` held while their holder waits, and how long others stood in line.
How it decides: across an `await` always, because the loop's own thread may want the lock next.
Across a wait for the device or I/O when others were kept waiting for at least 1 % of the time, or
50 ms.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.interpreter_use import LockHeld
from ostinato.doctor.probe import Verdict, times, with_spread
from ostinato.units import format_us

RULE = RULES["OST502"]
_SHARE = 0.01
_LEAST_US = 50e3
_WOULD_WAIT = "what would be a wait for the device"
_ACROSS = {"device": "a wait for the device", "io": "a call that blocks", "await": "an await"}


def probe(evidence: Evidence) -> Verdict:
    """Find locks that are held while their holder waits."""
    watched_us = evidence.subject.seconds * 1e6
    guilty = [lock for lock in evidence.locks if _counts(lock, watched_us)]
    if not guilty:
        return None
    first = max(guilty, key=lambda lock: (lock.blocked_us, lock.across == "await", lock.us))
    across = _ACROSS.get(first.across, first.across)
    if first.across == "device" and evidence.subject.device != "cuda":
        across = _WOULD_WAIT
    fact = f"a lock is held across {across}, {times(first.count)}"
    if first.taken is not None and first.place is not None and first.taken.line != first.place.line:
        fact += f"; it was taken at {first.taken}"
    if first.blocked:
        waited = format_us(first.blocked_us)
        fact += f"; others stood in line {times(first.blocked)}, for {waited} in all"
    share = first.blocked_us / watched_us if 0 < first.blocked_us <= watched_us else None
    per_wait = first.blocked_us / first.blocked if first.blocked else None
    cost = Cost(per_wait, share, per="wait") if per_wait else None
    cost = with_spread(cost, first.each_blocked_us, "wait")
    others = tuple(lock.place for lock in guilty if lock is not first and lock.place is not None)
    return RULE.finding(fact, first.place, cost, others=others[:5])


def _counts(lock: LockHeld, watched_us: float) -> bool:
    if lock.across == "await":
        return True
    return lock.blocked > 0 and lock.blocked_us >= min(_LEAST_US, _SHARE * watched_us)
