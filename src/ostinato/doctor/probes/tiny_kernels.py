"""OST103 tiny-kernels.

What it sees: the length of every kernel in a profiled window.
How it decides: the device is busy (60 % or more: else launching is the first problem), and kernels
under 5 us make up half of its time and 70 % of its kernels, 50 a step or more. 5 us is several
times what a kernel costs inside a graph (1 us on an H200), so what is there to win is real.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost
from ostinato.doctor.probe import ONE_WINDOW, Verdict, percent

RULE = RULES["OST103"]
_BUSY = 0.6
_SHARE_OF_TIME = 0.5
_SHARE_OF_KERNELS = 0.7
_PER_STEP = 50


def probe(evidence: Evidence) -> Verdict:
    """Find a device that is busy with small kernels."""
    profile = evidence.profile
    if profile is None or not profile.kernels or profile.wall_us <= 0:
        return None
    steps = max(profile.steps, 1)
    time_share = profile.short_us / profile.busy_us if profile.busy_us else 0.0
    count_share = profile.short_kernels / profile.kernels
    if profile.busy_us < _BUSY * profile.wall_us or profile.short_kernels / steps < _PER_STEP:
        return None
    if time_share < _SHARE_OF_TIME or count_share < _SHARE_OF_KERNELS:
        return None
    fact = (
        f"{profile.short_kernels / steps:.0f} of {profile.kernels / steps:.0f} kernels a step take "
        f"under 5 us, and together {percent(time_share)} of the device's time"
    )
    if profile.top:
        often = max(profile.top, key=lambda kernel: kernel.count)
        fact += f"; the most frequent is {_short(often.name)} ({often.count / steps:.0f} a step)"
    share = profile.short_us / profile.wall_us
    cost = Cost(profile.short_us / steps, share, steps=profile.steps, no_spread=ONE_WINDOW)
    return RULE.finding(fact, None, cost)


def _short(name: str) -> str:
    plain = name.removeprefix("void ").partition("<")[0].partition("(")[0]
    return plain.rpartition("::")[2] or plain
