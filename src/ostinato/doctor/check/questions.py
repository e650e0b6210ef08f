"""The decision tree: what has to hold so that one recording can stand for a call. Pure.

Each question collects the reasons (words of `ostinato.graphs.reasons`) that answer it with no. The
order is the one in which people should change their code: a host read matters little while the
shapes depend on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ostinato.doctor.finding import Place


@dataclass(frozen=True, slots=True)
class Blocker:
    """One line that a recording cannot hold.

    Attributes:
        reason: A word such as "host-sync"; `ostinato explain WORD` says more.
        op: The call that does it.
        times: How often one call does it.
        instead: What to write instead.
        behind_assumption: Whether the line was reached only after a read was answered with an
            assumed value, so that it may not run with the real one.
    """

    reason: str
    op: str
    place: Place | None
    detail: str
    instead: str
    times: int = 1
    is_branch: bool = False
    behind_assumption: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be looked at, and what would settle it.

    Attributes:
        opens: Keys of the questions that it leaves open, unless something else answers them.
    """

    what: str
    place: Place | None
    settles_it: str
    opens: frozenset[str] = frozenset({"rest"})


class Holds(StrEnum):
    """The answer to one question."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Question:
    """One branch of the tree."""

    key: str
    text: str
    reasons: frozenset[str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A question with its answer and one line of evidence."""

    key: str
    text: str
    holds: Holds
    evidence: str


QUESTIONS = (
    Question(
        "inputs",
        "can the inputs be copied in, and are they not empty?",
        frozenset({"unsupported-input", "empty-batch", "requires-grad", "unsupported-device"}),
    ),
    Question("devices", "does everything lie on one device?", frozenset({"several-devices"})),
    Question(
        "shapes", "are all shapes independent of values?", frozenset({"data-dependent-shape"})
    ),
    Question("control-flow", "is no branch taken by the values of a tensor?", frozenset()),
    Question(
        "host-reads",
        "does the host read or wait for nothing?",
        frozenset({"host-sync", "data-dependent-shape"}),  # the host reads such a shape to allocate
    ),
    Question("host-copies", "is nothing copied in from the host?", frozenset({"host-copy"})),
    Question(
        "compiled",
        "does compiled code inside leave graphs to the outer one?",
        frozenset({"compiled-inside"}),
    ),
    Question("dtypes", "is no branch taken by a dtype under autocast?", frozenset()),
    Question(
        "generators",
        "can all random generators be replayed?",
        frozenset({"unregistered-generator"}),
    ),
    Question("python", "does Python leave nothing behind?", frozenset({"python-side-effect"})),
    Question("outputs", "can the result be handed out?", frozenset({"unsupported-output"})),
    Question(
        "rest",
        "is every other call one that a graph can hold?",
        frozenset({"capture-error", "mismatch"}),
    ),
)

OF_THE_WAY = frozenset(each.key for each in QUESTIONS) - {"inputs"}
"""Questions that only hold for the ways through the code that were followed."""


def answered(
    blockers: Sequence[Blocker], gaps: Sequence[Gap], evidence: dict[str, str], is_complete: bool
) -> tuple[Answer, ...]:
    """Answer every question.

    Args:
        evidence: By key of the question, what was seen that does not stand in the way.
        is_complete: Whether a run came to its end; else a question without a no is open.
    """
    return tuple(_answer(each, blockers, gaps, evidence, is_complete) for each in QUESTIONS)


def _open_at(gap: Gap, is_asked_of_branches: bool) -> str:
    if gap.opens == OF_THE_WAY and not is_asked_of_branches:
        return "only one way was followed"
    return str(gap.place) if gap.place else gap.what


def _answer(
    question: Question,
    blockers: Sequence[Blocker],
    gaps: Sequence[Gap],
    evidence: dict[str, str],
    is_complete: bool,
) -> Answer:
    branches = question.key == "control-flow"
    found = [
        each
        for each in blockers
        if (each.is_branch if branches else each.reason in question.reasons)
    ]
    seen = evidence.get(question.key, "")
    if found:
        places = {str(each.place) if each.place else each.op: None for each in found}
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        return Answer(question.key, question.text, Holds.NO, next(iter(places)) + more)
    if not is_complete:
        return Answer(question.key, question.text, Holds.UNKNOWN, seen or "the run did not end")
    for gap in gaps:
        if question.key in gap.opens:
            return Answer(question.key, question.text, Holds.UNKNOWN, _open_at(gap, branches))
    return Answer(question.key, question.text, Holds.YES, seen)
