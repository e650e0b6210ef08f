"""When a step is bound by launching: what several probes must agree on."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.doctor.activity import Profile
from ostinato.doctor.evidence import Evidence

_MOST_BUSY = 0.6
_MOST_WAITING = 0.4
_LEAST_LAUNCHES = 20


@dataclass(frozen=True, slots=True)
class Launching:
    """A step whose device idles while the host launches, per step.

    Attributes:
        idle_us: Time in which the device did nothing.
        idle_share: The same of the step.
    """

    launches: float
    kernels: float
    step_us: float
    idle_us: float
    idle_share: float


def launching(evidence: Evidence) -> Launching | None:
    """Return how a step is bound by its launches, or None where it is not, or nobody profiled.

    The device must be idle for at least 40 % of the window, the host must not have waited for it in
    that time (a host that waits has queued its work), and there must be launches enough to fill it.
    """
    profile = evidence.profile
    if profile is None or profile.wall_us <= 0:
        return None
    steps = max(profile.steps, 1)
    launches = (profile.launches - profile.graph_launches) / steps
    idle_us = max(0.0, profile.wall_us - profile.busy_us) / steps
    step_us = profile.wall_us / steps
    is_idle = profile.busy_us < _MOST_BUSY * profile.wall_us
    waits = profile.wait_us / profile.wall_us
    if not is_idle or waits > _MOST_WAITING or launches < _LEAST_LAUNCHES:
        return None
    return Launching(launches, profile.kernels / steps, step_us, idle_us, idle_us / step_us)


def has_launches(profile: Profile | None) -> bool:
    """Return whether a window saw any device at work."""
    return profile is not None and profile.kernels > 0
