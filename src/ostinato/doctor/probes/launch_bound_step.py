"""OST102 launch-bound-step.

What it sees: a profiled window of steps: how long the device was busy, and how many launches it
took.
How it decides: the device idles for 40 % of the window or more, the host does not wait for it, and
at least 20 kernels of a step were launched one by one. What is lost is the idle time. Without a
window it abstains, because host times alone cannot tell a slow host from a busy device.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import ONE_WINDOW, Verdict, abstain, enough_steps, percent
from ostinato.doctor.probes.launches import launching

RULE = RULES["OST102"]


def probe(evidence: Evidence) -> Verdict:
    """Find steps whose device waits for launches."""
    if evidence.profile is None:
        return _not_profiled(evidence)
    found = launching(evidence)
    if found is None:
        return None
    fact = (
        f"the device idles {percent(found.idle_share)} of each step while the host makes "
        f"{found.launches:.0f} launches for {found.kernels:.0f} kernels"
    )
    cost = Cost(found.idle_us, found.idle_share, steps=evidence.profile.steps, no_spread=ONE_WINDOW)
    place = next((c.place for c in evidence.callables if c.name == evidence.step_name), None)
    return RULE.finding(fact, place, cost)


def _not_profiled(evidence: Evidence) -> Verdict:
    if evidence.subject.device != "cuda" or not enough_steps(evidence):
        return None
    return abstain(
        RULE,
        "nobody profiled, so it is not known how long the device idles",
        "run again with `--deep`, or `watch(profile=True)`",
    )
