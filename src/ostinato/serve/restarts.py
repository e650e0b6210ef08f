"""Whether, and how soon, a process that ended is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_STABLE_S = 30.0
"""Who lived so long was well; what ended it then is new."""
_FIRST_S, _MOST_S = 0.5, 30.0
_MOST_BEFORE_READY = 3


@dataclass(frozen=True, slots=True)
class Restarts:
    """The history of one process.

    Attributes:
        failures: Ends in a row, each soon after its start.
        was_ready: Whether it ever did its work: only then is it worth trying for ever.
    """

    failures: int = 0
    was_ready: bool = False

    def ended(self, lived_s: float, *, was_ready: bool) -> Restarts:
        """Return the history with one more end."""
        failures = 1 if lived_s >= _STABLE_S else self.failures + 1
        return replace(self, failures=failures, was_ready=self.was_ready or was_ready)

    @property
    def is_hopeless(self) -> bool:
        """Whether it should not be started again."""
        return not self.was_ready and self.failures >= _MOST_BEFORE_READY

    @property
    def wait_s(self) -> float:
        """How long to wait before the next start: nothing the first time."""
        if self.failures <= 1:
            return 0.0
        return float(min(_FIRST_S * 2 ** (self.failures - 2), _MOST_S))
