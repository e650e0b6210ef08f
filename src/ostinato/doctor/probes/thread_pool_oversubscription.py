"""OST505 thread-pool-oversubscription.

What it sees: torch's threads, the processes and Python threads that compute at once, the CPUs that
the affinity and the cgroup allow, and how long threads stood ready without one.
How it decides: a quarter more threads than CPUs, and either a fifth of the running time was spent
ready without a CPU, or a tenth of the cgroup's periods ended throttled. A machine that is busy with
something else shows the second alone, and is not reported.
A process that makes no steps while others compute is taken to wait for them, and wants no CPU;
its own threads say nothing of theirs, so the probe abstains. With one thread in each process no
pool is too large; whether these or other programs took the CPUs was not counted: it abstains too.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.interpreter_use import ThreadPools
from ostinato.doctor.probe import Verdict, abstain, percent

RULE = RULES["OST505"]
_TOO_MANY = 1.25
_READY = 0.2
_THROTTLED = 0.1


def probe(evidence: Evidence) -> Verdict:
    """Find more compute threads than CPUs."""
    pools = evidence.threads
    if pools is None or pools.cpus <= 0:
        return None
    computing = _computing(evidence, pools)
    wanted = _wanted(pools, computing)
    if wanted < _TOO_MANY * pools.cpus:
        return None
    ready, throttled = pools.runnable_share or 0.0, pools.throttled_share or 0.0
    if ready < _READY and throttled < _THROTTLED:
        return None
    if computing < pools.processes:
        return _only_waits(pools, computing)
    if pools.torch_threads == 1:
        return _untold(pools, computing, ready, throttled)
    fact = f"{_words(pools, computing)} want {wanted} CPUs, and {pools.cpus:g} are allowed"
    if ready >= _READY:
        fact += f"; threads stood ready without a CPU for {percent(ready)} of the time they ran"
    if throttled >= _THROTTLED:
        fact += f"; {percent(throttled)} of the cgroup's periods ended throttled"
    share = max(ready / (1 + ready), throttled)
    return RULE.finding(
        fact, pools.place, Cost(None, share, per="thread", no_spread="the kernel adds it up")
    )


def _computing(evidence: Evidence, pools: ThreadPools) -> int:
    """Return the processes that compute; one without steps beside others waits for them."""
    waits = pools.processes > 1 and evidence.steps_seen == 0
    return pools.processes - waits


def _wanted(pools: ThreadPools, computing: int) -> int:
    """Return the CPUs wanted; several Python threads count only where each has a pool."""
    at_once = pools.python_threads if pools.torch_threads > 1 else 1
    return computing * pools.torch_threads * at_once


def _only_waits(pools: ThreadPools, computing: int) -> Verdict:
    who = f"{computing} processes compute" if computing > 1 else "a process computes"
    why = (
        f"{who} while this one, with {pools.torch_threads} torch threads, waits; only this one's "
        "threads and its time without a CPU were measured"
    )
    settles_it = "print torch.get_num_threads() in a worker, and hold it against its share of CPUs"
    return abstain(RULE, why, settles_it)


def _untold(pools: ThreadPools, computing: int, ready: float, throttled: float) -> Verdict:
    seen = (
        f"threads stood ready without a CPU for {percent(ready)} of the time they ran"
        if ready >= _READY
        else f"{percent(throttled)} of the cgroup's periods ended throttled"
    )
    who = f"{computing} processes" if computing > 1 else "a process"
    why = (
        f"{who} with one torch thread{' each' * (computing > 1)} may use {pools.cpus:g} CPUs, and "
        f"{seen}; whether all compute at once, or other programs took the CPUs, was not counted"
    )
    settles_it = "watch with as many workers as CPUs, on a machine that does nothing else"
    return abstain(RULE, why, settles_it)


def _words(pools: ThreadPools, computing: int) -> str:
    words = f"{pools.torch_threads} torch threads"
    if pools.torch_threads > 1 and pools.python_threads > 1:
        words = f"{pools.python_threads} Python threads with {words} each"
    if computing > 1:
        words = f"{computing} processes with {words}"
    return words
