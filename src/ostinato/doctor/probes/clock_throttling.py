"""OST704 clock-throttling.

What it sees: the GPU's clock and NVML's reasons while work was running.
How it decides: under load, a reason that slows down (heat, power, a brake), and a clock at least a
tenth below its maximum; where it was watched for longer, the reason held for a fifth of the time.
Dense work meets the power limit on a healthy card: an H200 at its 700 W ran at 1755 to 1800 of 1980
MHz, 2026-11-30. So where the limit is the only reason, a fifth must be lost.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.host_evidence import Clocks
from ostinato.doctor.probe import Verdict, abstain
from ostinato.doctor.probes.remote_numa_memory import used_gpu

RULE = RULES["OST704"]
_LOST = 0.1
_LOST_TO_POWER = 0.2
_HELD = 0.2
_SLOWS = {
    "sw_power_cap": "the power limit",
    "hw_slowdown": "a hardware slowdown",
    "hw_thermal_slowdown": "heat",
    "sw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "the power brake",
    "hw_power_brake": "the power brake",
    "applications_clocks_setting": "a clock that was set by hand",
    "sync_boost": "a group of GPUs that share a clock",
}


def probe(evidence: Evidence) -> Verdict:
    """Find a clock that is held down under load."""
    host = evidence.host
    if host is None or not host.gpus:
        return None
    gpu = used_gpu(host)
    clocks = gpu.clocks
    if clocks is None or not clocks.sm_mhz or not clocks.max_sm_mhz:
        return None
    lost = 1 - clocks.sm_mhz / clocks.max_sm_mhz
    reasons = _reasons(clocks)
    if not reasons or lost < (_LOST_TO_POWER if reasons == ["sw_power_cap"] else _LOST):
        return None
    words = " and ".join(dict.fromkeys(_SLOWS[reason] for reason in reasons))
    if not clocks.under_load:
        return abstain(
            RULE,
            f"GPU {gpu.index} names {words} for a low clock, but it was read while idle",
            "run `ostinato doctor host` on the GPU's machine: it looks while work is running",
        )
    fact = (
        f"GPU {gpu.index} runs at {clocks.sm_mhz} of {clocks.max_sm_mhz} MHz under load, "
        f"held down by {words}"
    )
    if clocks.temperature_c is not None:
        fact += f", at {clocks.temperature_c} degrees"
    if clocks.power_w is not None and clocks.power_limit_w is not None:
        fact += f", {clocks.power_w:.0f} of {clocks.power_limit_w:.0f} W"
    return RULE.finding(fact, None, Cost(None, lost, kind=Basis.INFERRED, per="device"))


def _reasons(clocks: Clocks) -> list[str]:
    held = dict(zip(clocks.reasons, clocks.throttled_us, strict=False))
    return [
        reason
        for reason in clocks.reasons
        if reason in _SLOWS
        and (
            not clocks.watched_us or reason not in held or held[reason] >= _HELD * clocks.watched_us
        )
    ]
