"""OST501 gil-contention.

What it sees: samples of every thread: who ran, and who wanted the GIL and had it not.
How it decides: at least 10 samples, and in a tenth of them or more one thread waited while another
held it; of those that waited, the one that makes the steps counts first. A thread's waiting time is
what passed, less its time on a CPU and its time ready without one.
Where two threads or more stood ready without a CPU for a third of the time, nobody can tell whether
they would have waited for the GIL: it abstains.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.interpreter_use import Gil, ThreadUse
from ostinato.doctor.probe import Verdict, abstain, cost_in_steps, percent
from ostinato.units import format_us

RULE = RULES["OST501"]
_SAMPLES = 10
_CONTENDED = 0.1
_WAITS = 0.1
_STARVED = 1 / 3
_SAMPLED = "waits were sampled, and added up"


def probe(evidence: Evidence) -> Verdict:
    """Find threads that wait for each other to run Python."""
    gil = evidence.gil
    if gil is None:
        return None
    return _found(evidence, gil) or _too_busy(gil)


def _too_busy(gil: Gil) -> Verdict:
    starved = [t for t in gil.threads if t.runs >= _WAITS and t.ready >= _STARVED]
    if len(starved) < 2:
        return None
    most = max(starved, key=lambda thread: thread.ready)
    why = (
        f"{len(starved)} threads stood ready without a CPU for up to {percent(most.ready)} of the "
        "time, which hides how long they would wait for the GIL"
    )
    return abstain(RULE, why, "watch the program on a machine with CPUs to spare")


def _found(evidence: Evidence, gil: Gil) -> Verdict:
    if gil.samples < _SAMPLES or gil.contended < _CONTENDED:
        return None
    waiters = [t for t in gil.threads if t.waits >= _WAITS and not _is_brief(t)]
    if not waiters or len([t for t in gil.threads if t.runs + t.waits >= _WAITS]) < 2:
        return None
    stepping = {step.thread for step in evidence.steps[-64:]}
    waiter = max(waiters, key=lambda thread: (thread.name in stepping, thread.wait_us))
    holder = _holder(gil, waiter)
    if holder is None:
        return None
    another = f"another {holder.name}" if holder.name == waiter.name else holder.name
    fact = (
        f"{waiter.name} waits for the GIL {percent(waiter.waits)} of the time, "
        f"{format_us(waiter.wait_us)} in all, while {another} holds it"
    )
    rest = len(waiters) - 1
    fact += f"; {rest} more thread{'s' * (rest > 1)} wait too" if rest else ""
    others = tuple(place for place in (waiter.waits_at,) if place is not None)
    return RULE.finding(
        fact, holder.place or waiter.waits_at, _cost(evidence, waiter), others=others
    )


def _holder(gil: Gil, waiter: ThreadUse) -> ThreadUse | None:
    # Threads of one pool may share a name, and so may what they keep each other from.
    others = [t for t in gil.threads if t is not waiter and t.runs >= _WAITS]
    if any(thread.holds for thread in others):  # and not who ran while nobody waited
        return max(others, key=lambda thread: thread.holds)
    return max(others, key=lambda thread: thread.runs, default=None)


def _is_brief(thread: ThreadUse) -> bool:
    """Whether a thread was seen too seldom: its shares say little, and it cost little."""
    return 0 < thread.samples < _SAMPLES


def _cost(evidence: Evidence, waiter: ThreadUse) -> Cost | None:
    if any(step.thread == waiter.name for step in evidence.steps[-64:]):
        cost = cost_in_steps(evidence, waiter.wait_us)
        return None if cost is None else replace(cost, no_spread=_SAMPLED)
    watched_us = evidence.subject.seconds * 1e6
    share = min(1.0, waiter.wait_us / watched_us) if watched_us else None
    return Cost(None, share, per="thread", no_spread=_SAMPLED)
