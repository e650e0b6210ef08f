"""What became of one call: replayed, recorded or run eagerly, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ostinato.graphs.reasons import Reason


class Outcome(Enum):
    """How a call was answered."""

    REPLAYED = "replayed"
    RECORDED = "recorded"
    EAGER = "eager"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Decision:
    """The record of one call.

    Attributes:
        outcome: How it was answered. A recorded call was answered by the eager run that preceded
            the recording.
        reason: Why it ran eagerly, or why an earlier recording had to be made anew; else None.
        graph_id: The recording that served it or was made by it.
        detail: One sentence for people, such as the op and the line that stood in the way.
    """

    outcome: Outcome
    reason: Reason | None = None
    graph_id: str | None = None
    detail: str = ""

    @classmethod
    def eager(cls, reason: Reason, detail: str = "") -> Decision:
        """Return the decision to run eagerly."""
        return cls(Outcome.EAGER, reason, None, detail)

    def __str__(self) -> str:
        parts = [self.outcome.value]
        if self.graph_id:
            parts.append(self.graph_id)
        if self.reason:
            parts.append(f"({self.reason}{': ' + self.detail if self.detail else ''})")
        return " ".join(parts)


class OstinatoWarning(UserWarning):
    """Something a replay does not do as an eager call would, said once per cause."""
