"""Whether this front end and the engine behind it can be relied on.

Three questions that others answer as one: is the process alive (`/livez`: restart it if not), does
work move (`/healthz`: waiting requests and no step for a while is a hang, whatever the process says
of itself), and should it be sent requests now (`/readyz`: warm, not stopping, objectives kept).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.serve.drain import Drain
    from ostinato.serve.services import Link
    from ostinato.serve.wire import Pulse


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer to one of the questions.

    Attributes:
        why: Why not; None if all is well.
    """

    why: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether all is well."""
        return self.why is None


def progress(pulse: Pulse | None, age_s: float, progress_s: float) -> Verdict:
    """Judge whether the engine makes progress.

    Args:
        pulse: How it stood last; None: it is not there.
        age_s: How long ago that was.
        progress_s: The longest time without a step while work waits, and without a word.
    """
    if pulse is None:
        return Verdict("the engine is not there")
    if pulse.why is not None:
        return Verdict(pulse.why)
    if age_s > progress_s:
        return Verdict(f"the engine has not been heard of for {age_s:.0f} s")
    stuck_s = pulse.idle_s + age_s
    if pulse.is_living and stuck_s > progress_s:
        return Verdict(f"requests wait and no step was made for {stuck_s:.0f} s")
    return Verdict()


def ready(progresses: Verdict, pulse: Pulse | None, *, is_draining: bool) -> Verdict:
    """Judge whether requests should be sent here."""
    if is_draining:
        return Verdict("the server is stopping")
    if not progresses.is_good:
        return progresses
    if pulse is not None and not pulse.is_warm:
        return Verdict("the engine is warming up")
    return Verdict()


class Health:
    """What one front end says of itself.

    Args:
        link: The engine behind it; None where there is none.
        open_reason: Why the breaker turns requests away; None while it does not.
        others: Judges what else this process serves.
    """

    def __init__(
        self,
        link: Link | None,
        drain: Drain,
        progress_s: float,
        *,
        open_reason: Callable[[], str | None] = lambda: None,
        others: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._link, self._drain = link, drain
        self._progress_s = progress_s
        self._open_reason = open_reason
        self._others = others

    def live(self) -> Verdict:
        """Whether this process answers: it just did."""
        return Verdict()

    def progress(self) -> Verdict:
        """Whether work moves."""
        if self._link is None:
            return Verdict(self._others())
        return progress(self._link.pulse, self._link.pulse_age_s, self._progress_s)

    def ready(self) -> Verdict:
        """Whether requests should be sent here."""
        pulse = None if self._link is None else self._link.pulse
        verdict = ready(self.progress(), pulse, is_draining=self._drain.is_draining)
        return verdict if not verdict.is_good else Verdict(self._open_reason())
