"""OST505 thread-pool-oversubscription.

What it sees: torch's threads, the processes and Python threads that compute at once, the CPUs that
the affinity and the cgroup allow, and how long threads stood ready without one.
How it decides: a quarter more threads than CPUs, and either a fifth of the running time was spent
ready without a CPU, or a tenth of the cgroup's periods ended throttled. A machine that is busy with
something else shows the second alone, and is not reported.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.interpreter_use import ThreadPools
from ostinato.doctor.probe import Verdict, percent

RULE = RULES["OST505"]
_TOO_MANY = 1.25
_READY = 0.2
_THROTTLED = 0.1


def probe(evidence: Evidence) -> Verdict:
    """Find more compute threads than CPUs."""
    pools = evidence.threads
    if pools is None or pools.cpus <= 0:
        return None
    wanted = _wanted(pools)
    if wanted < _TOO_MANY * pools.cpus:
        return None
    ready, throttled = pools.runnable_share or 0.0, pools.throttled_share or 0.0
    if ready < _READY and throttled < _THROTTLED:
        return None
    fact = f"{_words(pools)} want {wanted} CPUs, and {pools.cpus:g} are allowed"
    if ready >= _READY:
        fact += f"; threads stood ready without a CPU for {percent(ready)} of the time they ran"
    if throttled >= _THROTTLED:
        fact += f"; {percent(throttled)} of the cgroup's periods ended throttled"
    share = max(ready / (1 + ready), throttled)
    return RULE.finding(
        fact, pools.place, Cost(None, share, per="thread", no_spread="the kernel adds it up")
    )


def _wanted(pools: ThreadPools) -> int:
    """Return the CPUs wanted; several Python threads count only where each has a pool."""
    at_once = pools.python_threads if pools.torch_threads > 1 else 1
    return pools.processes * pools.torch_threads * at_once


def _words(pools: ThreadPools) -> str:
    words = f"{pools.torch_threads} torch threads"
    if pools.torch_threads > 1 and pools.python_threads > 1:
        words = f"{pools.python_threads} Python threads with {words} each"
    if pools.processes > 1:
        words = f"{pools.processes} processes with {words}"
    return words
