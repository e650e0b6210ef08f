"""What a check says: capturable, not, or not known; and each line in the way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ostinato.doctor.check.estimate import Estimate
from ostinato.doctor.check.questions import Answer, Blocker, Gap
from ostinato.doctor.plain import to_plain


class Verdict(StrEnum):
    """Whether one recording can stand for the call."""

    CAPTURABLE = "capturable"
    NOT_CAPTURABLE = "not-capturable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one check.

    Attributes:
        target: What was checked, as it was named.
        blockers: What stands in the way, in the order met; empty where the call can be captured.
        gaps: What could not be looked at. With no blocker they make the verdict unknown.
        notes: What a capture holds and a reader should know.
        answers: The questions of the decision tree, in order.
        assumed: Reads of the host that were answered with assumed values.
        estimate: Launches and the gain; None where no run came to its end.
        pretended: The device that was pretended.
    """

    target: str
    blockers: tuple[Blocker, ...]
    gaps: tuple[Gap, ...]
    notes: tuple[str, ...]
    answers: tuple[Answer, ...]
    assumed: int
    estimate: Estimate | None
    pretended: str
    torch: str

    @property
    def verdict(self) -> Verdict:
        """The whole in one word."""
        if self.blockers:
            return Verdict.NOT_CAPTURABLE
        return Verdict.UNKNOWN if self.gaps else Verdict.CAPTURABLE

    @property
    def reason(self) -> str | None:
        """The reason of the first blocker, a word of `ostinato.graphs.reasons`."""
        return self.blockers[0].reason if self.blockers else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain: dict[str, Any] = to_plain(self)
        for gap in plain["gaps"]:
            gap["opens"] = sorted(gap["opens"])  # JSON has no sets
        if self.estimate is not None:
            plain["estimate"]["gain"] = round(self.estimate.gain, 2)
        return {"version": 1, "verdict": str(self.verdict), "reason": self.reason, **plain}
