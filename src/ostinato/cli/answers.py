"""What two ways of answering one prompt have to say about each other. Arithmetic and words only.

`run.py` makes the answers; here they become tokens per second, a speed-up and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

MEASURED = (
    "Tokens/s counts new tokens over the wall time of the whole generate call, prompt included;\n"
    "both sides warmed up with the same short answers, when the recordings were made."
)
ON_A_CPU = "This ran on a CPU, which shows the semantics of replaying; its speed shows on a GPU."


@dataclass(frozen=True, slots=True)
class Side:
    """One way of answering: what it said, and how long each timed answer took.

    Attributes:
        ids: New tokens, the end-of-text token included; every answer gave the same.
        seconds: One wall time per timed answer, at least one.
    """

    ids: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float:
        """New tokens per second of the median answer."""
        return len(self.ids) / median(self.seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one `ostinato run`.

    Attributes:
        text: What the replayed side said, special tokens left out.
        report: The runtime's own account: recordings, reuse rate, reasons, bytes.
        how: What became of the last answer of the replayed side, and why if it was no replay.
        difference: Where the two sides part and how close the call was; None if they do not.
    """

    text: str
    eager: Side
    replayed: Side
    report: Mapping[str, Any]
    how: str
    difference: str | None = None

    @property
    def tokens_identical(self) -> bool:
        """Whether both sides said the same, token for token."""
        return self.eager.ids == self.replayed.ids

    @property
    def speedup(self) -> float:
        """How many times more tokens per second the replayed side gave."""
        return self.replayed.tokens_per_s / self.eager.tokens_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return the one object that `--json` prints."""
        return {
            "text": self.text,
            "tokens_identical": self.tokens_identical,
            "eager_tokens_per_s": round(self.eager.tokens_per_s, 3),
            "replay_tokens_per_s": round(self.replayed.tokens_per_s, 3),
            "speedup": round(self.speedup, 4),
            "report": dict(self.report),
        }


def summary_lines(outcome: Outcome, *, on_cpu: bool) -> list[str]:
    """Say the numbers of `outcome` as lines for people."""
    rows = [("", "tokens/s", "tokens", "seconds", "timed answers")]
    for name, side in (("eager", outcome.eager), ("replayed", outcome.replayed)):
        rows.append(
            (
                name,
                f"{side.tokens_per_s:.1f}",
                str(len(side.ids)),
                f"{median(side.seconds):.3f}",
                str(len(side.seconds)),
            )
        )
    lines = [f"{a:<10}{b:>10}{c:>8}{d:>10}{e:>15}".rstrip() for a, b, c, d, e in rows]
    lines += [f"speed-up {outcome.speedup:.2f}x, {_agreement(outcome)}"]
    lines += [f"the replayed side was {outcome.how}", *_cost(outcome), "", MEASURED]
    return [*lines, ON_A_CPU] if on_cpu else lines


def _cost(outcome: Outcome) -> list[str]:
    graphs = outcome.report.get("graphs", [])
    seconds = sum(graph["build_seconds"] for graph in graphs)
    return [f"recording took {seconds:.2f} s, once"] if graphs else []


def _agreement(outcome: Outcome) -> str:
    if outcome.tokens_identical:
        return f"all {len(outcome.eager.ids)} tokens identical"
    return f"tokens differ ({outcome.difference})"
